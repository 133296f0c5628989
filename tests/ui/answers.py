"""Answers as the engine tells them, made by hand."""

from typing import Any

from localspec.engine.protocol import Finished, LensToken, RoundFigures
from localspec.messages import Message
from localspec.ui.exchange import Exchange


def round_of(drafted: int, accepted: int, seconds: float = 0.04) -> RoundFigures:
    """Return a round of a draft model that took so long."""
    return RoundFigures("model", drafted, accepted, accepted + 1, 0.0, seconds, 0.0)


def plain(seconds: float = 0.02) -> RoundFigures:
    """Return a round without a draft."""
    return RoundFigures("off", 0, 0, 1, 0.0, seconds, 0.0)


def finished(id: int = 1, text: str = "text", **changes: Any) -> Finished:  # noqa: A002 - the protocol's word
    """Return the end of an answer."""
    values: dict[str, Any] = {
        "id": id,
        "message": Message.assistant(text),
        "stop_reason": "eog",
        "seed": 7,
        "prompt_tokens": 10,
        "cached_tokens": 4,
        "completion_tokens": 3,
        "first_token_s": 0.1,
        "prefill_s": 0.1,
        "draft_prefill_s": 0.0,
        "decode_s": 1.0,
        "draft_s": 0.1,
        "verify_s": 0.8,
        "other_s": 0.1,
        "tokens_per_s": 20.0,
        "drafter": "lookup",
        "drafters": (),
    }
    return Finished(**{**values, **changes})


def exchange(
    text: str = "text",
    id: int = 1,  # noqa: A002 - the protocol's word
    rounds: list[RoundFigures] | None = None,
    tokens: list[LensToken] | None = None,
    done: bool = False,
) -> Exchange:
    """Return a request and what came back for it."""
    messages = (Message.user("question"),)
    made = Exchange(id, messages, answer=text, rounds=rounds or [], tokens=tokens or [])
    if done:
        made.finished = finished(id, text)
    return made
