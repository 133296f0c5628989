"""A reply's figures: as JSON for programs, as one line for people."""

import json

from localspec.chat.assistant import Assistant
from localspec.chat.events import Reply
from localspec.decoding.generate import StopReason
from localspec.decoding.stats import AcceptanceStats
from localspec.models.paths import shown

_ENDINGS = {
    StopReason.LENGTH: "cut at --max-tokens",
    StopReason.CANCELLED: "interrupted",
    StopReason.CONTEXT_FULL: "cut, the context is full: raise --ctx",
}


def as_json(assistant: Assistant, reply: Reply, *, only_ascii: bool = False) -> str:
    """Return one JSON object, on one line. Durations are in seconds.

    Args:
        assistant: who replied.
        reply: what is told.
        only_ascii: escape every other character, for a stream that has not all of them.
    """
    timings, models = reply.timings, assistant.models
    document = {
        "text": reply.text,
        **({"thinking": reply.thinking} if reply.thinking else {}),
        "stop_reason": reply.stop_reason.value,
        "seed": reply.seed,
        "model": {"target": models.target_name, "draft_model": models.draft_model_name},
        "usage": {
            "prompt_tokens": reply.prompt_tokens,
            "completion_tokens": reply.completion_tokens,
        },
        "timings": {
            "load_s": _rounded(assistant.load_s),
            "prefill_s": _rounded(timings.prefill_s),
            "draft_prefill_s": _rounded(timings.draft_prefill_s),
            "first_token_s": _rounded(reply.first_token_s),
            "decode_s": _rounded(timings.decode_s),
            "draft_s": _rounded(timings.draft_s),
            "verify_s": _rounded(timings.verify_s),
            "sample_s": _rounded(timings.sample_s),
            "other_s": _rounded(timings.other_s),
            "tokens_per_s": _rounded(reply.tokens_per_s),
        },
        "speculation": {
            "drafter": reply.drafter,
            **_acceptance(reply.acceptance),
            "by_drafter": {
                name: _acceptance(stats) for name, stats in reply.acceptance.by_drafter.items()
            },
        },
    }
    return json.dumps(document, ensure_ascii=only_ascii)


def one_line(assistant: Assistant, reply: Reply) -> str:
    """Return model, speed, drafting and seed, for stderr."""
    parts = [shown(assistant.models.target_name), f"{reply.completion_tokens} tokens"]
    if reply.tokens_per_s is not None:
        parts.append(f"{reply.tokens_per_s:.1f} tokens/s")
    if reply.acceptance.drafted:
        parts.append(
            f"{reply.drafter}: {reply.acceptance.accepted} of {reply.acceptance.drafted} drafted accepted"
        )
    else:
        parts.append("nothing drafted")
    if reply.stop_reason in _ENDINGS:
        parts.append(_ENDINGS[reply.stop_reason])
    parts.append(f"seed {reply.seed}")
    return "localspec: " + " · ".join(parts)


def _acceptance(stats: AcceptanceStats) -> dict[str, float | int | None]:
    return {
        "rounds": stats.rounds,
        "drafted": stats.drafted,
        "accepted": stats.accepted,
        "acceptance_rate": _rounded(stats.acceptance_rate),
        "mean_acceptance_length": _rounded(stats.mean_acceptance_length),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
