"""A conversation as a document: Markdown to read, JSON with every branch and figure; written to a file that was named, or to a new one.

Pictures and sounds are data URLs in JSON, and files in a folder beside Markdown.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from localspec.errors import UsageError
from localspec.history.archive import History, cut_at_word
from localspec.history.records import StoredConversation, StoredMessage, acts_of, content_of
from localspec.media import media_type
from localspec.messages import MediaPart, Message, Part, TextPart, ToolCall, ToolResult
from localspec.session.attachments import attached_lines
from localspec.session.compaction import COMMAND, is_request
from localspec.storage.files import holds_other
from localspec.storage.paths import shown

Counts = Counter[tuple[str, str]]
"""How often a rule had a match, and what was done about it."""
Mask = Callable[[str, Counts | None], str]
"""Returns a text without what must not be visible of it; the counts get the matches."""
STYLES = ("md", "json")
_TITLE_CHARS = 40
_SUFFIXES = {"jpeg": "jpg", "mpeg": "mp3"}
_OTHERS = {"csv", "doc", "docx", "epub", "htm", "html", "odt", "pdf", "rtf", "xml", "yaml", "yml"}
"""What people may ask for, and would get Markdown under a wrong name."""
_NAMES = {"user": "You", "assistant": "Assistant", "tool": "Result"}


class FileTaken(UsageError):
    """A file is there that is no export of this conversation."""


def exported(
    history: History,
    conversation: int,
    style: str,
    mask: Mask | None = None,
    leaf: int | None = None,
    counts: Counts | None = None,
    *,
    own: bool = True,
    media: str = "",
) -> str:
    """Return a conversation as Markdown, one branch, or as JSON, all of them.

    In Markdown, which is read by people, files that went with a question are named and left out.

    Args:
        history: where it is.
        conversation: its id.
        style: `md` or `json`.
        mask: masks what must not be visible of it; None lets everything through.
        leaf: the last message of the branch; None for the one that was added or visible last.
        counts: gets what the mask matched.
        own: whether the mask holds for what the user wrote and for the title, too.
        media: the folder, as Markdown links to it, of pictures and sounds; empty names them only.
    """
    stored = history.conversation(conversation)
    if style == "json":
        messages = history.messages(conversation)
    else:
        messages = [_readable(each, media) for each in history.branch(conversation, leaf)]
    if mask is not None:
        stored, messages = _masked(stored, messages, lambda text: mask(text, counts), own=own)
    return as_json(stored, messages) if style == "json" else as_markdown(stored, messages)


def _readable(message: StoredMessage, folder: str) -> StoredMessage:
    readable = replace(message.message, thinking="")  # left out, and not counted
    if readable.documents or readable.media:
        linked = [each for each in readable.media if folder and each.data]
        others = tuple(each for each in readable.parts if each not in linked)
        listed = "\n".join(f"+ {each}" for each in attached_lines(Message(readable.role, others)))
        blocks = (readable.typed, *(_link(each, folder) for each in linked), listed)
        readable = Message(readable.role, (TextPart("\n\n".join(filter(None, blocks))),))
    return replace(message, message=readable)


def _link(part: MediaPart, folder: str) -> str:
    name = re.sub(r"([\\\[\]])", r"\\\1", " ".join(part.name.split()))
    return f"{'!' * (part.kind == 'image')}[{name}]({folder}/{_file_name(part)})"


def _file_name(part: MediaPart) -> str:
    """Return a name that only this content has, so that an export overwrites nothing else."""
    suffix = media_type(part.data).rpartition("/")[2]
    return f"{part.sha256[:12]}.{_SUFFIXES.get(suffix, suffix)}"


def _masked(
    conversation: StoredConversation,
    messages: Iterable[StoredMessage],
    clean: Callable[[str], str],
    *,
    own: bool,
) -> tuple[StoredConversation, list[StoredMessage]]:
    """Return a conversation as it may be read: words, thoughts, documents, calls and results."""

    def part(each: Part, role: str) -> Part:
        if not own and role == "user" and isinstance(each, TextPart):
            return each
        if isinstance(each, MediaPart):
            return msgspec.structs.replace(each, name=clean(each.name))
        if isinstance(each, ToolCall):
            return msgspec.structs.replace(each, arguments=clean(each.arguments))
        return msgspec.structs.replace(each, text=clean(each.text))

    def message(one: Message) -> Message:
        parts = tuple(part(each, one.role) for each in one.parts)
        return replace(one, parts=parts, thinking=clean(one.thinking))

    title = clean(conversation.title) if own else conversation.title
    system = conversation.system and clean(conversation.system)
    cleaned = [replace(each, message=message(each.message)) for each in messages]
    return replace(conversation, title=title, system=system), cleaned


def as_markdown(conversation: StoredConversation, messages: Iterable[StoredMessage]) -> str:
    """Return the messages of one branch under headings, with the models where several answered; thoughts are left out."""
    messages = [*messages]
    answered = [each for each in messages if each.message.role == "assistant" and each.model]
    named = {each.id for each in answered} if len({each.model for each in answered}) > 1 else set()
    parts = [f"# {conversation.title or 'Conversation'}"]
    about = [_time(conversation.created_s), conversation.pair]
    parts.append(" · ".join(filter(None, about)))
    if conversation.system:
        quoted = "\n".join(f"> {line}".rstrip() for line in conversation.system.splitlines())
        parts.append(quoted)
    for message in messages:
        spoken = message.message
        cut = " (cut)" if message.state != "complete" else ""
        mark = f" ({message.mark})" if message.mark else ""
        failed = any(isinstance(each, ToolResult) and each.is_error for each in spoken.parts)
        who = (
            f"{_NAMES.get(spoken.role, spoken.role)}{f' · {message.model}' * (message.id in named)}"
        )
        parts.append(f"## {who}{cut}{mark}{' (error)' if failed else ''}")
        parts.append(COMMAND if is_request(message) else spoken.text.strip())
        parts += [_fenced(f"{each.name} {each.arguments}") for each in spoken.calls]
        parts += [_fenced(each.text) for each in spoken.parts if isinstance(each, ToolResult)]
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
                **_acts(message.message),
                "state": message.state,
                "created": _time(message.created_s),
                **({"model": message.model} if message.model else {}),
                **({"mark": message.mark} if message.mark else {}),
                **({"figures": message.known_figures} if message.figures else {}),
            }
            for message in messages
        ],
    }
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def _acts(message: Message) -> dict[str, Any]:
    """Return what a message has beside words, with its pictures and sounds."""
    acts: dict[str, Any] = json.loads(acts_of(message) or "{}")
    for value, part in zip(acts.get("media", ()), message.media, strict=True):
        value["url"] = part.data_url if part.data else None
    return acts


def _fenced(text: str) -> str:
    """Return a text in a fence that nothing in it ends."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"


def _time(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):  # another program wrote it
        return ""


def write_export(
    history: History,
    conversation: int,
    argument: str,
    folder: Path,
    mask: Mask | None,
    leaf: int | None = None,
    *,
    own: bool = False,
    force: bool = False,
) -> tuple[Path, str]:
    """Write a conversation to a file; return where that is, and how much of it was masked, as people read it.

    Args:
        history: where the conversation is.
        conversation: its id.
        argument: `md` or `json`, and a path; either may be missing.
        folder: what the path is relative to.
        mask: masks what must not be visible of it; None lets everything through.
        leaf: see `exported`.
        own: whether the mask holds for the user's own words, too.
        force: write over any file; without it, only over an earlier export of the same conversation.

    Raises:
        FileTaken: another file is there.
        UsageError: the file cannot be written.
    """
    style, _, name = argument.partition(" ")
    if style not in STYLES:
        style, name = ("json" if argument.endswith(".json") else "md"), argument
    if other := {argument.strip(), Path(name.strip()).suffix[1:]} & _OTHERS:
        raise UsageError(f"exports are md or json, not {other.pop()}: choose one of these")
    if name.strip() == "-":
        raise UsageError(
            f"'-' is no file: name one, or print it with `localspec history export {conversation} -`"
        )
    counts, stored = Counts(), history.conversation(conversation)
    if name.strip():
        path = folder / Path(name.strip()).expanduser()
    else:
        title = stored.title
        path = _free(folder, mask(title, None) if mask and own else title, style)
    beside = path.parent / f"{path.stem}-files"
    link = "" if style == "json" else quote(beside.name)
    text = exported(history, conversation, style, mask, leaf, counts, own=own, media=link)
    branch = history.branch(conversation, leaf) if link else []
    try:
        # What comes before the time of its beginning is the title, in both forms.
        created = _time(stored.created_s)
        if not force and holds_other(path, text[: text.find(created) + len(created)] or text):
            raise FileTaken(f"{shown(path)} is not of this conversation: name another file")
        path.write_text(text, encoding="utf-8")
        for part in (each for stored in branch for each in stored.message.media if each.data):
            beside.mkdir(exist_ok=True)
            (beside / _file_name(part)).write_bytes(part.data)
    except OSError as error:
        raise UsageError(
            f"{shown(path)} cannot be written ({error.strerror}): name another file"
        ) from error
    return path, masked_line(counts)


def export_line(path: Path, masked: str, conversation: int) -> str:
    """Return what people read of an export, and how to have all of it."""
    how = f"; {masked}: `localspec history export {conversation} --gate off` writes all"
    return f"written to {path}{how if masked else ''}"


def masked_line(counts: Counts) -> str:
    """Return how much was masked, as people read it; empty for nothing."""
    masked = Counts({name: count for name, count in counts.items() if name[1] != "note"})
    if not masked:
        return ""
    rules, count = ", ".join(dict.fromkeys(rule for rule, _ in masked)), masked.total()
    return f"{count} passage{'s' * (count > 1)} masked ({rules})"


def _free(folder: Path, title: str, style: str) -> Path:
    words = re.sub(r"[^\w-]+", " ", title).strip(" -")
    base = cut_at_word(words, _TITLE_CHARS).rstrip(" -…").replace(" ", "-") or "conversation"
    path, count = folder / f"{base}.{style}", 1
    while path.exists():
        count += 1
        path = folder / f"{base}-{count}.{style}"
    return path
