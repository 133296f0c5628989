"""What may be completed while the user writes: slash commands, their arguments, paths behind `@`."""

import re
from dataclasses import dataclass
from pathlib import Path

from localspec.display import clean_line
from localspec.session.attachments import completions
from localspec.ui.commands import BY_NAME, Command, matching

_PATH = re.compile(r'(?:^|\s)@("?)([^\s"]*)$')
_ARGUMENT = re.compile(r"/(\w+) (\S*)$")


@dataclass(frozen=True, slots=True)
class Completion:
    """One thing that the text may become.

    Args:
        text: what is shown.
        hint: what it means, or how large it is.
        before: the text in front of what is replaced.
        insert: what replaces it.
        after: the text behind the cursor.
        whole: whether nothing is missing then, so that it may be sent.
    """

    text: str
    hint: str
    before: str
    insert: str
    after: str
    whole: bool = False

    def applied(self) -> str:
        """Return the text with the completion in it."""
        return self.before + self.insert + self.after


def complete(text: str, offset: int, folder: Path) -> list[Completion]:
    """Return what the text may become.

    Args:
        text: all that is written.
        offset: where the cursor is.
        folder: what paths are relative to.
    """
    before, after = text[:offset], text[offset:]
    if before.startswith("/") and not after:
        found = [_command(each) for each in matching(before)]
        return found or _arguments(before)
    path = _PATH.search(before)
    return [] if path is None else _paths(before, after, path, folder)


def _command(command: Command) -> Completion:
    shown = f"/{command.name} {command.usage}".rstrip()
    insert = f"/{command.name}{' ' if command.usage else ''}"
    return Completion(shown, command.summary, "", insert, "", whole=not command.needs_more)


def _arguments(before: str) -> list[Completion]:
    match = _ARGUMENT.match(before)
    command = BY_NAME.get(match[1]) if match else None
    if match is None or command is None:
        return []
    return [
        Completion(word, "", before[: match.start(2)], f"{word} ", "")
        for word in command.arguments
        if word.startswith(match[2]) and word != match[2]
    ]


def _paths(before: str, after: str, match: re.Match[str], folder: Path) -> list[Completion]:
    typed = match[2]
    found = []
    for name, size in completions(typed, folder):
        quote = '"' if " " in name else ""
        insert = f"@{quote}{name}{'' if name.endswith('/') else quote + ' '}"
        start = before[: match.start(1) - 1]
        if name != typed:
            found.append(Completion(clean_line(name), size, start, insert, after))
    return found
