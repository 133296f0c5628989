"""Prompted: what a line wants answered, text or turns, checked to be something that a model can read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from localspec.chat.conversation import Conversation
from localspec.errors import UsageError
from localspec.messages import Message, checked_text, from_json

_ROLES = ("system", "developer", "user", "assistant")


@dataclass(frozen=True, slots=True, eq=False)
class Prompted:
    """A prompt as a line gives it.

    Args:
        prompt: a text, or a conversation.
        raw: whether a text goes to the model as it is.
        options: fields with options that belong to it, beside those of the line.
        model: what the line calls the model.
    """

    prompt: str | Conversation
    raw: bool = False
    options: Mapping[str, Any] | None = None
    model: str | None = None


def raw_prompt(text: Any, system: str | None, what: str) -> Prompted:
    """Return a text that goes to the model as it is.

    Raises:
        UsageError: it is none, or there is a system prompt, for which raw text has no place.
    """
    if system is not None:
        raise UsageError("raw text has no system prompt: remove one of them")
    return Prompted(checked_text(text, what), raw=True)


def spoken_prompt(text: Any, system: str | None, what: str) -> Prompted:
    """Return a text as what a user says.

    Raises:
        UsageError: it is none.
    """
    conversation = Conversation(system)
    conversation.append_user(checked_text(text, what))
    return Prompted(conversation)


def conversation_of(messages: Any, system: str | None) -> Conversation:
    """Return messages as a conversation; where the last is the assistant's, the answer goes on with it.

    Args:
        messages: objects with `role` and `content`; a content may be a list of parts, all of them text.
        system: the system prompt, if the first message is none.

    Raises:
        UsageError: they are no such messages.
    """
    if not isinstance(messages, list) or not messages:
        raise UsageError("messages is empty, or not a list: write at least one user message")
    said = [_message(each, number) for number, each in enumerate(messages, 1)]
    if all(each.role == "system" for each in said):
        raise UsageError("messages has nothing to answer: write at least one user message")
    return Conversation(None if said[0].role == "system" else system, said)


def _message(value: Any, number: int) -> Message:
    what = f"message {number}"
    if isinstance(value, dict):
        role = value.get("role")
        if role not in _ROLES:  # no line has tools
            raise UsageError(
                f"{what} has the role {str(role)[:40]!r}: choose one of {', '.join(_ROLES)}"
            )
        if value.get("tool_calls"):
            raise UsageError(f"{what} calls tools, which are not supported: remove tool_calls")
        value = {"role": role, "content": value.get("content")}  # thoughts are left out
    return from_json(value, what)
