"""Records of the history, and how messages with calls and results stand in its rows."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from localspec.errors import HistoryError
from localspec.messages import Message, ToolCall, ToolResult

State = Literal["streaming", "complete", "cut"]


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One message in a tree of them.

    Args:
        id: never used again, also after it was deleted.
        parent: the message that it follows; None for a first one.
        message: what was said.
        state: `streaming` while it is written, `cut` where it was stopped or its writer died, else `complete`.
        created_s: seconds since 1970.
        model: what answered, as it was called; of a result, the function; empty for the user's.
        figures: what the screen wants to remember of a reply or a result, as JSON; empty without any.
        siblings: ids of all messages with the same parent and conversation, itself included, oldest first.
    """

    id: int
    parent: int | None
    message: Message
    state: State
    created_s: float
    model: str
    figures: str
    siblings: tuple[int, ...]

    @property
    def known_figures(self) -> Mapping[str, object]:
        """The figures; none where they are damaged or another program wrote them."""
        try:
            values = json.loads(self.figures or "{}")
        except (ValueError, RecursionError):
            return {}
        return values if isinstance(values, dict) else {}


@dataclass(frozen=True, slots=True)
class StoredConversation:
    """What a list of conversations shows.

    Args:
        id: never used again, also after it was deleted.
        title: as the user named it, else the beginning of the first question.
        system: the system prompt; None without one.
        pair: what it was last held with, as `--pair` or `--target` names it.
        settings: what the screen wants to remember, as JSON; empty without any.
        created_s: seconds since 1970.
        updated_s: likewise, of the last message.
        leaf: the last message that was added or shown, with which the conversation opens; None for an empty one.
        n_messages: in all branches.
        excerpt: where a search found something in a message, the words around it; else empty.
        tags: what the user calls it, to find it again.
    """

    id: int
    title: str
    system: str | None
    pair: str
    settings: str
    created_s: float
    updated_s: float
    leaf: int | None
    n_messages: int
    excerpt: str = ""
    tags: tuple[str, ...] = ()


def acts_of(message: Message) -> str:
    """Return what a message calls, or what it is the result of, as JSON; empty for one of words alone."""
    for each in message.parts:
        if isinstance(each, ToolResult):
            return json.dumps({"result_of": each.call_id, "is_error": each.is_error})
    calls = [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in message.calls]
    return json.dumps({"calls": calls}) if calls else ""


def content_of(message: Message) -> str:
    """Return the words of a message: what was said, or the text of a result."""
    results = [each.text for each in message.parts if isinstance(each, ToolResult)]
    return results[0] if results else message.text


def message_of(row: Mapping[str, Any]) -> Message:
    """Return the message of a row.

    Raises:
        HistoryError: another program wrote its role or its acts.
    """
    role, content, thinking, acts = (row[key] for key in ("role", "content", "thinking", "acts"))
    if role not in {"user", "assistant"}:
        raise HistoryError(
            f"message {row['id']} of the history has the role {role[:40]!r}: delete its conversation"
        )
    if not acts:
        return Message.from_text(role, content, thinking)
    try:
        found = json.loads(acts)
        if "result_of" in found:
            result = ToolResult(str(found["result_of"]), content, found["is_error"] is True)
            return Message("tool", (result,))
        calls = [ToolCall(*map(str, (e["id"], e["name"], e["arguments"]))) for e in found["calls"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise HistoryError(
            f"calls of a message cannot be read ({acts[:40]!r}): delete its conversation"
        ) from None
    words = Message.from_text("assistant", content, thinking)
    return Message("assistant", (*words.parts, *calls), thinking)


def storable(text: str) -> str:
    """Return a text without lone surrogates, which UTF-8 has no bytes for."""
    return text.encode(errors="replace").decode() if not text.isascii() else text
