"""Writes conversations to files. Never over a file that is there, unless it was named."""

import re
from dataclasses import replace
from pathlib import Path

from localspec.errors import UsageError
from localspec.history.archive import History, cut_at_word
from localspec.history.export import Counts, Mask, as_json, as_markdown, seen
from localspec.history.records import StoredMessage
from localspec.messages import Message, TextPart
from localspec.session.attachments import attached_lines
from localspec.storage.paths import shown

STYLES = ("md", "json")
_TITLE_CHARS = 40


def exported(
    history: History,
    conversation: int,
    style: str,
    mask: Mask | None = None,
    leaf: int | None = None,
    counts: Counts | None = None,
    *,
    own: bool = True,
) -> str:
    """Return a conversation as Markdown, one branch, or as JSON, all of them.

    In Markdown, which is read by people, files that went with a question are named and left out.

    Args:
        history: where it is.
        conversation: its id.
        style: `md` or `json`.
        mask: masks what must not be seen of it; None lets everything through.
        leaf: the last message of the branch; None for the one that was added or shown last.
        counts: gets what was found.
        own: whether that holds for the user's own words, too; see `seen`.
    """
    stored = history.conversation(conversation)
    if style == "json":
        return as_json(*seen(stored, history.messages(conversation), mask, counts, own=own))
    branch = map(_readable, history.branch(conversation, leaf))
    return as_markdown(*seen(stored, branch, mask, counts, own=own))


def _readable(message: StoredMessage) -> StoredMessage:
    said = replace(message.message, thinking="")  # left out, and not counted
    if not said.documents:
        return replace(message, message=said)
    listed = "".join(f"\n+ {each}" for each in attached_lines(said))
    return replace(message, message=Message(said.role, (TextPart(f"{said.typed}\n{listed}"),)))


def write_export(
    history: History,
    conversation: int,
    argument: str,
    folder: Path,
    mask: Mask | None,
    leaf: int | None = None,
    *,
    own: bool = False,
) -> tuple[Path, str]:
    """Write a conversation to a file; return where that is, and how much of it was masked, as people read it.

    Args:
        history: where the conversation is.
        conversation: its id.
        argument: `md` or `json`, and a path; either may be missing.
        folder: what the path is relative to.
        mask: masks what must not be seen of it; None lets everything through.
        leaf: see `exported`.
        own: whether that holds for the user's own words, too; see `seen`.

    Raises:
        UsageError: the file cannot be written.
    """
    style, _, name = argument.partition(" ")
    if style not in STYLES:
        style, name = ("json" if argument.endswith(".json") else "md"), argument
    counts = Counts()
    text = exported(history, conversation, style, mask, leaf, counts, own=own)
    if name.strip():
        path = folder / Path(name.strip()).expanduser()
    else:
        title = history.conversation(conversation).title
        path = _free(folder, mask(title, None) if mask and own else title, style)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{shown(path)} cannot be written ({error.strerror}): name another file"
        ) from error
    return path, _masked(counts)


def export_line(path: Path, masked: str, conversation: int) -> str:
    """Return what people read of an export, and how to have all of it."""
    how = f"; {masked}: `localspec history export {conversation} --gate off` writes all"
    return f"written to {path}{how if masked else ''}"


def _masked(counts: Counts) -> str:
    found = Counts({name: count for name, count in counts.items() if name[1] != "note"})
    if not found:
        return ""
    rules, count = ", ".join(dict.fromkeys(rule for rule, _ in found)), found.total()
    return f"{count} passage{'s' * (count > 1)} masked ({rules})"


def _free(folder: Path, title: str, style: str) -> Path:
    words = re.sub(r"[^\w-]+", " ", title).strip(" -")
    base = cut_at_word(words, _TITLE_CHARS).rstrip(" -…").replace(" ", "-") or "conversation"
    path, count = folder / f"{base}.{style}", 1
    while path.exists():
        count += 1
        path = folder / f"{base}-{count}.{style}"
    return path
