"""Rules: which calls need no question, and which are refused, by function and by what they touch.

They stand in `tools.toml` beside the user's own settings, never in a project:

    allow = ["read_file", "run_command pytest", "write_file docs/"]
    deny = ["* .env", "run_command git push"]
"""

import re
import shlex
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Self

from msgspec import Meta, Struct

from localspec.storage.paths import config_dir
from localspec.storage.toml import read_settings

FILE = "tools.toml"
COMMAND = "run_command"
_Text = Annotated[str, Meta(pattern=r"\S")]
# With one of these a command is more than its first words.
_MORE = re.compile(r"[;&|<>$`(){}\n\r]")
_APART = re.compile(r"[;&|\n\r(){}`]+|\$\(")


@dataclass(frozen=True, slots=True)
class Rule:
    """What one line of the rules says. What it denies is a name at every depth, unless there is a slash in it.

    Args:
        tool: name of a function; `*` stands for any letters.
        subject: beginning of what it touches: words of a command, or a path, in which `*` stands for any letters;
            empty covers everything.
    """

    tool: str
    subject: str = ""

    def __str__(self) -> str:
        return f"{self.tool} {self.subject}".rstrip()

    def covers(self, tool: str, subject: str) -> bool:
        """Return whether a call is what it says, for certain: a command that is more than its words is not."""
        if not fnmatchcase(tool, self.tool):
            return False
        if not self.subject:
            return True
        if tool == COMMAND:
            return not _MORE.search(subject) and _begins(subject, self.subject)
        return ".." not in subject.split("/") and _below(subject, self.subject)

    def touches(self, tool: str, subject: str) -> bool:
        """Return whether a call could be what it says; of a command, whether any part of it begins so."""
        if not fnmatchcase(tool, self.tool):
            return False
        if not self.subject:
            return True
        if tool == COMMAND:
            return any(_begins(each, self.subject) for each in _APART.split(subject))
        # Some file systems do not tell large from small letters.
        path, start = subject.casefold(), self.subject.casefold().rstrip("/")
        if "/" in start:
            return _below(path, start)
        parts = path.split("/")
        return any(_below("/".join(parts[at:]), start) for at in range(len(parts)))


class _File(Struct, forbid_unknown_fields=True):
    allow: list[_Text] = []
    deny: list[_Text] = []


@dataclass(frozen=True, slots=True)
class Rules:
    """What needs no question, and what is refused; a refusal comes first."""

    allow: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()

    @classmethod
    def read(cls, file: Path | None = None) -> Self:
        """Return the rules in a file, by default the user's own; none where there is no file.

        Raises:
            UsageError: it is no TOML, or holds something else than rules.
        """
        settings = read_settings(config_dir() / FILE if file is None else file, _File)
        return cls(
            *(
                tuple(Rule(*each.split(None, 1)) for each in listed)
                for listed in (settings.allow, settings.deny)
            )
        )

    def denied(self, tool: str, subject: str) -> Rule | None:
        """Return the rule that refuses a call; None without one."""
        return next((each for each in self.deny if each.touches(tool, subject)), None)

    def allowed(self, tool: str, subject: str) -> bool:
        """Return whether a call needs no question."""
        return any(each.covers(tool, subject) for each in self.allow)


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # a quote that does not end
        return command.split()


def _begins(command: str, words: str) -> bool:
    wanted = _words(words)
    return _words(command)[: len(wanted)] == wanted


def _below(path: str, start: str) -> bool:
    folder = start.rstrip("/")
    return path == folder or path.startswith(f"{folder}/") or fnmatchcase(path, start)
