"""A conversation as a document: Markdown to read, JSON with every branch and figure."""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime

import msgspec

from localspec.history.records import StoredConversation, StoredMessage, acts_of, content_of
from localspec.messages import Message, Part, TextPart, ToolCall, ToolResult

Counts = Counter[tuple[str, str]]
"""How often a rule found something, and what was done about it."""
Mask = Callable[[str, Counts | None], str]
"""Returns a text without what must not be seen of it; the counts get what was found."""
_NAMES = {"user": "You", "assistant": "Assistant", "tool": "Result"}


def seen(
    conversation: StoredConversation,
    messages: Iterable[StoredMessage],
    mask: Mask | None,
    counts: Counts | None = None,
    *,
    own: bool = True,
) -> tuple[StoredConversation, list[StoredMessage]]:
    """Return a conversation as it may be seen: words, thoughts, documents, calls and results.

    Args:
        conversation: where it is.
        messages: of it.
        mask: masks what must not be seen; None lets everything through.
        counts: gets what was found.
        own: whether that holds for what the user wrote and for the title, too.
    """
    if mask is None:
        return conversation, [*messages]

    def clean(text: str) -> str:
        return mask(text, counts)

    head = replace(
        conversation,
        title=clean(conversation.title) if own else conversation.title,
        system=conversation.system and clean(conversation.system),
    )
    return head, [
        replace(
            each,
            message=replace(
                each.message,
                parts=tuple(
                    part
                    if not own and each.message.role == "user" and isinstance(part, TextPart)
                    else _seen(part, clean)
                    for part in each.message.parts
                ),
                thinking=clean(each.message.thinking),
            ),
        )
        for each in messages
    ]


def _seen(part: Part, clean: Callable[[str], str]) -> Part:
    if isinstance(part, ToolCall):
        return msgspec.structs.replace(part, arguments=clean(part.arguments))
    return msgspec.structs.replace(part, text=clean(part.text))


def as_markdown(conversation: StoredConversation, messages: Iterable[StoredMessage]) -> str:
    """Return the messages of one branch under headings; thoughts are left out."""
    parts = [f"# {conversation.title or 'Conversation'}"]
    about = [_time(conversation.created_s), conversation.pair]
    parts.append(" · ".join(filter(None, about)))
    if conversation.system:
        quoted = "\n".join(f"> {line}".rstrip() for line in conversation.system.splitlines())
        parts.append(quoted)
    for message in messages:
        said = message.message
        cut = " (cut)" if message.state != "complete" else ""
        failed = any(isinstance(each, ToolResult) and each.is_error for each in said.parts)
        parts.append(f"## {_NAMES.get(said.role, said.role)}{cut}{' (error)' if failed else ''}")
        parts.append(said.text.strip())
        parts += _acts(said)
    return "\n\n".join(filter(None, parts)) + "\n"


def as_json(conversation: StoredConversation, messages: Iterable[StoredMessage]) -> str:
    """Return one object: the conversation, and all messages that are given, with their parents."""
    document = {
        "title": conversation.title,
        "created": _time(conversation.created_s),
        "pair": conversation.pair,
        "system": conversation.system,
        "leaf": conversation.leaf,
        "messages": [
            {
                "id": message.id,
                "parent": message.parent,
                "role": message.message.role,
                "content": content_of(message.message),
                **({"thinking": message.message.thinking} if message.message.thinking else {}),
                **(json.loads(acts) if (acts := acts_of(message.message)) else {}),
                "state": message.state,
                "created": _time(message.created_s),
                **({"model": message.model} if message.model else {}),
                **({"figures": _figures(message.figures)} if message.figures else {}),
            }
            for message in messages
        ],
    }
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def _acts(said: Message) -> list[str]:
    """Return the calls of a message, or its result, in fences that nothing in them ends."""
    told = [f"{each.name} {each.arguments}" for each in said.calls]
    told += [each.text for each in said.parts if isinstance(each, ToolResult)]
    return [_fenced(each) for each in told]


def _fenced(text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"


def _time(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):  # written by somebody else
        return ""


def _figures(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # written by somebody else
        return text
