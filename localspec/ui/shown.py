"""Shown: what a message says on the screen, made from what the history keeps. No Textual."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from localspec.display import reading_text
from localspec.history.records import StoredMessage
from localspec.ui.attach import label
from localspec.ui.exchange import Exchange

_ENDINGS = {
    "cancelled": "stopped",
    "length": "cut at max_tokens, /continue resumes",
    "loop": "stopped, it repeated itself",
    "context_full": "the context is full",
}


SAVED_AGAIN = "the history is saved again, including everything said meanwhile"

Kind = Literal["question", "reply", "greeting"]


@dataclass(frozen=True, slots=True)
class Shown:
    """What a message shows.

    Args:
        heading: who speaks, and which of several versions this is.
        text: the message: Markdown of a reply, plain text of a question.
        thoughts: of a reply.
        note: figures and the like, below it.
        kind: what it is; a reply is Markdown, all else is text as it is.
    """

    heading: str
    text: str
    thoughts: str = ""
    note: str = ""
    kind: Kind = "question"


def shown(message: StoredMessage, number: int | None = None) -> Shown:
    """Return what a kept message shows; `number` is that of a question."""
    version = ""
    if len(message.siblings) > 1:
        at = message.siblings.index(message.id) + 1
        version = f" · version {at} of {len(message.siblings)}"
    said = message.message
    if said.role == "user":
        note = "\n".join(f"+ {label(each)}" for each in said.documents)
        heading = f"You · {number}{version}" if number else f"You{version}"
        return Shown(heading, said.typed, note=note)
    heading = f"{message.model or 'Assistant'}{version}"
    return Shown(heading, said.text, said.thinking, _note(message), kind="reply")


def growing(exchange: Exchange, name: str, before: StoredMessage | None) -> Shown:
    """Return what an answer shows while it streams; `before` is the part of a continued one."""
    text, thoughts = exchange.answer, exchange.thoughts
    if before is not None:
        text, thoughts = before.message.text + text, before.message.thinking + thoughts
    note = "" if exchange.tokens else _waiting(exchange)
    return Shown(name or "Assistant", text, thoughts, note, kind="reply")


def _waiting(exchange: Exchange) -> str:
    if exchange.started is None:
        return "waiting for the engine …"
    new = exchange.started.prompt_tokens - exchange.started.cached_tokens
    return f"{reading_text(round(exchange.prefilled * new), new)} …"


def _note(message: StoredMessage) -> str:
    figures = _figures(message.figures)
    parts = []
    if isinstance(tokens := figures.get("tokens"), int):
        parts.append(f"{tokens} token{'' if tokens == 1 else 's'}")
    if isinstance(speed := figures.get("tokens_per_s"), float):
        parts.append(f"{speed:.1f} tokens/s")
    if isinstance(left_out := figures.get("left_out"), int) and left_out:
        parts.append(f"{left_out} oldest turns left out")
    ending = _ENDINGS.get(str(figures.get("stop")), "")
    if message.state == "cut" and not ending:
        ending = "interrupted, /continue resumes"
    return " · ".join([*parts, *([ending] if ending else [])])


def _figures(text: str) -> Mapping[str, object]:
    try:
        values = json.loads(text) if text else {}
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}
