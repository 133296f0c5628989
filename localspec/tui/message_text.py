"""MessageText: what a message says on the screen, made from what the history keeps. No Textual."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from localspec.display import counted, drafting_text, duration_text, reading_text
from localspec.messages import MediaPart, Message, ToolCall, ToolResult
from localspec.session.attachments import attached_lines, label
from localspec.session.citing import NumberedPassage, citations
from localspec.session.compaction import typed_of
from localspec.session.conversation import StoredMessage
from localspec.tui.exchange import Exchange

_ENDINGS = {
    "cancelled": "stopped",
    "length": "cut at max_tokens, /continue resumes",
    "loop": "stopped, it repeated itself",
    "context_full": "the context is full",
    "gated": "stopped by a rule of --gate",
}
Kind = Literal["question", "reply", "result"]
_MOST_ARGUMENTS = 400


@dataclass(frozen=True, slots=True)
class MessageText:
    """What a message shows.

    Args:
        heading: who speaks, and which of several versions this is.
        text: the message: Markdown of a reply, plain text of a question.
        thoughts: of a reply.
        note: figures and the like, below it.
        kind: what it is; a reply is Markdown, all else is text as it is.
        media: the pictures and sounds of a question, with a line about each.
    """

    heading: str
    text: str
    thoughts: str = ""
    note: str = ""
    kind: Kind = "question"
    media: tuple[tuple[MediaPart, str], ...] = ()


def message_text(
    message: StoredMessage,
    number: int | None = None,
    passages: Mapping[int, NumberedPassage] = MappingProxyType({}),
    about: Callable[[MediaPart], str] = label,
) -> MessageText:
    """Return what a stored message shows.

    Args:
        message: it.
        number: of a question.
        passages: of the conversation, which an answer may cite.
        about: returns a line about a picture or a sound.
    """
    version = ""
    if len(message.siblings) > 1:
        at = message.siblings.index(message.id) + 1
        version = f" · version {at} of {len(message.siblings)}"
    turn = message.message
    if turn.role == "user":
        parts = tuple(each for each in turn.parts if not isinstance(each, MediaPart))
        note = "\n".join(f"+ {each}" for each in attached_lines(Message(turn.role, parts)))
        heading = f"You · {number}{version}" if number else f"You{version}"
        text = typed_of(message)
        media = tuple((each, about(each)) for each in turn.media)
        return MessageText(heading, text, note=note, media=media)
    for each in turn.parts:
        if isinstance(each, ToolResult):
            return _result(message, each)
    cited = citations(turn.text, passages).lines()
    note = "\n".join(filter(None, [*cited, *map(call_line, turn.calls), _note(message)]))
    heading = f"{message.model or 'Assistant'}{version}"
    return MessageText(heading, turn.text, turn.thinking, note, "reply")


def call_line(call: ToolCall) -> str:
    """Return a call in a line: the function and its arguments, of long ones the beginning and the end."""
    arguments = call.arguments_line
    if len(arguments) > _MOST_ARGUMENTS:
        half = _MOST_ARGUMENTS // 2
        arguments = f"{arguments[:half]} … {arguments[-half:]}"
    return f"→ {call.name} {arguments}".rstrip()


def _result(message: StoredMessage, result: ToolResult) -> MessageText:
    """Return what a result shows: the function, how long it took, and all of the text, which folds where it is long."""
    seconds = message.known_figures.get("seconds")
    took = f" · {duration_text(seconds, 1)}" if isinstance(seconds, float) else ""
    failed = " · error" if result.is_error else ""
    return MessageText(f"{message.model or 'Result'}{took}{failed}", result.text, kind="result")


def growing_text(exchange: Exchange, name: str, before: StoredMessage | None) -> MessageText:
    """Return what an answer shows while it streams; `before` is the part of a continued one."""
    text, thoughts = exchange.answer, exchange.thoughts
    if before is not None:
        text, thoughts = before.message.text + text, before.message.thinking + thoughts
    note = "\n".join(map(call_line, exchange.calls)) if exchange.tokens else _waiting(exchange)
    return MessageText(name or "Assistant", text, thoughts, note, "reply")


def _waiting(exchange: Exchange) -> str:
    if exchange.started is None:
        return "waiting for the model …"
    new = exchange.started.prompt_tokens - exchange.started.cached_tokens
    return f"{reading_text(round(exchange.prefilled * new), new)} …"


def _note(message: StoredMessage) -> str:
    figures, parts = message.known_figures, []
    if isinstance(tokens := figures.get("tokens"), int):
        parts.append(counted(tokens, "token"))
    if isinstance(speed := figures.get("tokens_per_s"), float):
        parts.append(f"{speed:.1f} tokens/s")
    drafted, accepted, gain = (figures.get(each) for each in ("drafted", "confirmed", "gain"))
    if isinstance(drafted, int) and isinstance(accepted, int):
        ratio, idle = gain if isinstance(gain, float) else None, figures.get("no_drafting", "")
        parts.append(drafting_text(drafted, accepted, ratio, str(idle)))
    if isinstance(left_out := figures.get("left_out"), int) and left_out:
        parts.append(f"{counted(left_out, 'oldest turn')} left out")
    if message.mark:
        parts.append(f"marked {message.mark}")
    ending = _ENDINGS.get(str(figures.get("stop")), "")
    if message.state == "cut" and not ending:
        ending = "interrupted, /continue resumes"
    return " · ".join([*parts, *([ending] if ending else [])])
