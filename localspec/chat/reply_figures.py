"""A reply's figures as plain values, for JSON. Durations are in seconds."""

from typing import Any

from localspec.chat.events import Reply
from localspec.decoding.gain import Gain
from localspec.decoding.stats import AcceptanceStats

Figures = dict[str, Any]


def usage(reply: Reply) -> Figures:
    """Return how many tokens went in and came out."""
    return {"prompt_tokens": reply.prompt_tokens, "completion_tokens": reply.completion_tokens}


def timings(reply: Reply) -> Figures:
    """Return where the time went."""
    spent = reply.spent
    stages_s = spent.draft_prefill_s + spent.draft_s + spent.verify_s + spent.sample_s
    return {
        "prefill_s": rounded(reply.prefill_s),
        "draft_prefill_s": rounded(spent.draft_prefill_s),
        "first_token_s": rounded(reply.first_token_s),
        "decode_s": rounded(reply.decode_s),
        "draft_s": rounded(spent.draft_s),
        "verify_s": rounded(spent.verify_s),
        "sample_s": rounded(spent.sample_s),
        "other_s": rounded(max(0.0, reply.decode_s - stages_s)),
        "tokens_per_s": rounded(reply.tokens_per_s),
    }


def speculation(reply: Reply, reason: str) -> Figures:
    """Return how drafting went, in all and by drafter; `reason` is why it went so, as `Finished` has it."""
    return {
        "drafter": reply.drafter,
        "gain": _gain(reply.gain),
        **_acceptance(reply.acceptance),
        "by_drafter": {
            name: _acceptance(stats) for name, stats in reply.acceptance.by_drafter.items()
        },
        "reason": reason or None,
    }


def rounded(value: float | None) -> float | None:
    """Return a figure without digits that were not measured."""
    return None if value is None else round(value, 6)


def _gain(gain: Gain | None) -> Figures | None:
    if gain is None:
        return None
    low, high = map(rounded, gain.interval)
    return {"ratio": rounded(gain.ratio), "low": low, "high": high}


def _acceptance(stats: AcceptanceStats) -> Figures:
    return {
        "rounds": stats.rounds,
        "drafted": stats.drafted,
        "accepted": stats.accepted,
        "acceptance_rate": rounded(stats.acceptance_rate),
        "mean_acceptance_length": rounded(stats.mean_acceptance_length),
        "branches": stats.branched,
        "branches_accepted": stats.caught,
    }
