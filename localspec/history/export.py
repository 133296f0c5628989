"""A conversation as a document: Markdown to read, JSON with every branch and figure."""

import json
from collections.abc import Iterable
from datetime import datetime

from localspec.history.records import StoredConversation, StoredMessage

_NAMES = {"user": "You", "assistant": "Assistant"}


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
        parts.append(f"## {_NAMES.get(said.role, said.role)}{cut}")
        parts.append(said.text.strip())
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
                "content": message.message.text,
                **({"thinking": message.message.thinking} if message.message.thinking else {}),
                "state": message.state,
                "created": _time(message.created_s),
                **({"model": message.model} if message.model else {}),
                **({"figures": _figures(message.figures)} if message.figures else {}),
            }
            for message in messages
        ],
    }
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


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
