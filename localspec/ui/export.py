"""Writes conversations to files. Never over a file that is there, unless it was named."""

import re
from dataclasses import replace
from pathlib import Path

from localspec.errors import UsageError
from localspec.gates.gate import Gate
from localspec.history.archive import History, cut_at_word
from localspec.history.export import as_json, as_markdown, seen
from localspec.history.records import StoredMessage
from localspec.messages import Message, TextPart
from localspec.storage.paths import shown
from localspec.ui.shown import attached_lines

STYLES = ("md", "json")
_TITLE_CHARS = 40


def exported(
    history: History,
    conversation: int,
    style: str,
    gate: Gate | None = None,
    leaf: int | None = None,
) -> str:
    """Return a conversation as Markdown, one branch, or as JSON, all of them.

    In Markdown, which is read by people, files that went with a question are named and left out.

    Args:
        history: where it is.
        conversation: its id.
        style: `md` or `json`.
        gate: what must not be seen of it; None lets everything through.
        leaf: the last message of the branch; None for the one that was added or shown last.
    """
    stored = history.conversation(conversation)
    if style == "json":
        return as_json(*seen(stored, history.messages(conversation), gate))
    return as_markdown(*seen(stored, map(_readable, history.branch(conversation, leaf)), gate))


def _readable(message: StoredMessage) -> StoredMessage:
    said = message.message
    if not said.documents:
        return message
    listed = "".join(f"\n+ {each}" for each in attached_lines(said))
    return replace(message, message=Message(said.role, (TextPart(f"{said.typed}\n{listed}"),)))


def write_export(
    history: History,
    conversation: int,
    argument: str,
    folder: Path,
    gate: Gate | None,
    leaf: int | None = None,
) -> Path:
    """Write a conversation to a file and return where that is.

    Args:
        history: where the conversation is.
        conversation: its id.
        argument: `md` or `json`, and a path; either may be missing.
        folder: what the path is relative to.
        gate: what must not be seen of it; None lets everything through.
        leaf: see `exported`.

    Raises:
        UsageError: the file cannot be written.
    """
    style, _, name = argument.partition(" ")
    if style not in STYLES:
        style, name = ("json" if argument.endswith(".json") else "md"), argument
    text = exported(history, conversation, style, gate, leaf)
    if name.strip():
        path = folder / Path(name.strip()).expanduser()
    else:
        title = history.conversation(conversation).title
        path = _free(folder, title if gate is None else gate.cleaned(title), style)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{shown(path)} cannot be written ({error.strerror}): name another file"
        ) from error
    return path


def _free(folder: Path, title: str, style: str) -> Path:
    words = re.sub(r"[^\w-]+", " ", title).strip(" -")
    base = cut_at_word(words, _TITLE_CHARS).rstrip(" -…").replace(" ", "-") or "conversation"
    path, count = folder / f"{base}.{style}", 1
    while path.exists():
        count += 1
        path = folder / f"{base}-{count}.{style}"
    return path
