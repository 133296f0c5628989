"""A reply's figures: as JSON for programs, as one line for people."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from localspec.chat.events import Reply
from localspec.chat.reply_figures import rounded, speculation, timings, usage
from localspec.decoding.round import StopReason
from localspec.errors import LocalspecError
from localspec.storage.paths import shown

if TYPE_CHECKING:
    from localspec.toolbox.loop import CarriedOut

_ENDINGS = {
    StopReason.LENGTH: "cut off at --max-tokens",
    StopReason.LOOP: "stopped, it repeated itself",
    StopReason.CANCELLED: "interrupted",
    StopReason.CONTEXT_FULL: "cut off, the context is full: raise --ctx",
    StopReason.GATED: "stopped by a rule of --gate",
}


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """A reply, and who gave it.

    Args:
        reply: what is told.
        target: the target's name.
        draft_model: likewise; None without one.
        load_s: seconds that loading took.
        no_drafting: why nothing was drafted, in about five words.
    """

    reply: Reply
    target: str
    draft_model: str | None
    load_s: float
    no_drafting: str = ""


def as_json(
    outcome: RunOutcome,
    workload: str,
    said: "Sequence[Reply | CarriedOut]" = (),
    cited: Mapping[str, Any] | None = None,
    *,
    bound: bool = False,
    only_ascii: bool = False,
) -> str:
    """Return one JSON object, on one line. Durations are in seconds.

    Args:
        outcome: what is told.
        workload: what kind of text it is.
        said: all replies and what came of their calls, in order.
        cited: passages, and which of them the answer cites.
        bound: whether the answer has to follow a grammar.
        only_ascii: escape every other character, for a stream that has not all of them.
    """
    reply = outcome.reply
    document: dict[str, Any] = {
        "text": reply.text,
        **({"thinking": reply.thinking} if reply.thinking else {}),
        **(cited or {}),
        "stop_reason": reply.stop_reason.value,
        "complete": is_complete(reply, bound=bound),
        "seed": reply.seed,
        "workload": workload,
        "model": {"target": outcome.target, "draft_model": outcome.draft_model},
        "usage": usage(reply),
        "timings": {"load_s": rounded(outcome.load_s), **timings(reply)},
        "speculation": speculation(reply),
    }
    if rounds := list(_rounds(said)):
        document["rounds"] = rounds
    return json.dumps(document, ensure_ascii=only_ascii)


def cut_short_as_json(
    text: str, thinking: str, error: LocalspecError, *, only_ascii: bool = False
) -> str:
    """Return what there is of an answer, and why there is no more of it, as `as_json` does; whoever made it took all figures along."""
    document = {
        "text": text,
        **({"thinking": thinking} if thinking else {}),
        "error": {"type": type(error).__name__, "message": str(error)},
    }
    return json.dumps(document, ensure_ascii=only_ascii)


def _rounds(said: "Sequence[Reply | CarriedOut]") -> Iterator[dict[str, Any]]:
    """Yield every reply that called, and what its calls came to."""
    for number, reply in enumerate(said):
        if not (isinstance(reply, Reply) and reply.calls):
            continue
        calls = []
        for each in said[number + 1 :]:
            if isinstance(each, Reply):
                break
            calls.append(_carried_out(each))
        yield {
            "text": reply.text,
            "calls": calls,
            "usage": usage(reply),
            "timings": timings(reply),
        }


def _carried_out(done: "CarriedOut") -> dict[str, Any]:
    call, result = done.call, done.result
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        arguments = call.arguments
    return {
        "name": call.name,
        "arguments": arguments,
        "result": result.text,
        "is_error": result.is_error,
        "seconds": rounded(done.seconds),
    }


def is_complete(reply: Reply, *, bound: bool = False) -> bool:
    """Return whether an answer ended by itself or by a stop text; one that is `bound` to a grammar, by itself alone."""
    return reply.stop_reason not in _ENDINGS and (not bound or reply.stop_reason is StopReason.EOG)


def not_whole(reply: Reply, *, bound: bool) -> str:
    """Return what to know of an answer that was cut off, on one line."""
    ending = _ENDINGS.get(reply.stop_reason, "ended by a stop text")
    so = ", so it does not follow its grammar" if bound else ""
    return f"the answer is incomplete{so}: {ending}"


def one_line(outcome: RunOutcome) -> str:
    """Return model, speed, drafting and seed, for stderr."""
    reply = outcome.reply
    parts = [shown(outcome.target), f"{reply.completion_tokens} tokens"]
    if reply.tokens_per_s is not None:
        parts.append(f"{reply.tokens_per_s:.1f} tokens/s")
    if reply.acceptance.drafted:
        parts.append(
            f"{reply.drafter}: {reply.acceptance.accepted} of {reply.acceptance.drafted} drafted tokens accepted"
        )
        if reply.acceptance.branched:
            parts.append(
                f"{reply.acceptance.caught} of {reply.acceptance.branched} second choices accepted"
            )
    else:
        parts.append(outcome.no_drafting or "nothing drafted")
    if reply.stop_reason in _ENDINGS:
        parts.append(_ENDINGS[reply.stop_reason])
    parts.append(f"seed {reply.seed}")
    return "localspec: " + " · ".join(parts)
