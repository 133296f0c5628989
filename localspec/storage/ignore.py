"""Ignore rules: what `.gitignore` files leave out, read here, since git would run what a repository's settings name."""

import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path

_MOST_BYTES = 64 << 10
_EXCLUDES_FILE = re.compile(
    r'^\s*excludesfile\s*=\s*"?([^"\n]+?)"?\s*$', re.IGNORECASE | re.MULTILINE
)
_BRACKETS = re.compile(r"([!^]?)((?:\\.|[^\\])(?:\\.|[^\]\\])*)\]", re.DOTALL)
_LETTERS = re.compile(r"\\?(.)-\\?(.)|\\?(.)", re.DOTALL)
_OTHER = r"[^/\0]"  # a character of a name
_STAR = f"{_OTHER}*"
_PATH = r"[^\0]*+\0"
_FOLDERS = rf"(?:{_OTHER}+/)*?"


@dataclass(frozen=True, slots=True)
class _Lines:
    """Lines of a file that stand together, as regular expressions for a name, a NUL, and the path from the file's folder on.

    Args:
        included: whether they begin with `!`.
        files: what holds for files; None for nothing.
        folders: what holds for folders.
    """

    included: bool
    files: re.Pattern[str] | None
    folders: re.Pattern[str] | None


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """The rules that hold in a folder, from the most general on: lines, and how much of a path stands before what they match."""

    parts: tuple[tuple[tuple[_Lines, ...], int], ...] = ()

    def inside(self, folder: str, base: int) -> "IgnoreRules":
        """Return the rules that hold in a folder further down; a repository has its own.

        Args:
            folder: where it is.
            base: characters of its path, up to its slash, in the paths that `ignores` is given.
        """
        texts, parts = [_text(f"{folder}/.gitignore")], self.parts
        if os.path.lexists(f"{folder}/.git"):
            texts, parts = [_user_text(), _text(f"{folder}/.git/info/exclude"), *texts], ()
        return IgnoreRules((*parts, *((_lines(each), base) for each in texts if each)))

    def ignores(self, path: str, name: str, *, is_folder: bool) -> bool:
        """Return whether a file or folder is left out; `name` is the last part of its path."""
        for lines, base in reversed(self.parts):
            text = f"{name}\0{path[base:]}"
            for each in lines:
                regex = each.folders if is_folder else each.files
                if regex and regex.match(text):
                    return not each.included
        return False


def rules_above(folder: Path) -> tuple[IgnoreRules, str] | None:
    """Return the rules that the folders above a folder have for it, and its path in its repository, up to a slash.

    Outside a repository there are none but the user's own. None where the folder itself is left out.
    """
    root = next((e for e in (folder, *folder.parents) if os.path.lexists(e / ".git")), None)
    if root is None:
        text = _user_text()
        return IgnoreRules(((_lines(text), 0),) if text else ()), ""
    rules, path = IgnoreRules(), ""
    for name in folder.relative_to(root).parts:
        rules = rules.inside(f"{root}/{path}", len(path))
        if rules.ignores(path + name, name, is_folder=True):
            return None
        path += f"{name}/"
    return rules, path


def _text(path: str, flags: int = os.O_NOFOLLOW) -> str:
    """Return the beginning of a regular file, empty where there is none; no link is followed, as git follows none."""
    try:
        # Without O_NONBLOCK, opening a named pipe waits for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    except (OSError, ValueError):
        return ""
    try:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        content = os.read(descriptor, _MOST_BYTES) if is_file else b""
    except OSError:
        content = b""
    finally:
        os.close(descriptor)
    return content.decode("utf-8-sig", errors="surrogateescape")


def _user_text() -> str:
    """Return the user's own rules, in the file that their git settings name."""
    settings = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    named = _EXCLUDES_FILE.search(_text(_expanded("~/.gitconfig"), 0))
    return _text(_expanded(named[1] if named else f"{settings}/git/ignore"), 0)


def _expanded(path: str) -> str:
    return os.path.expanduser(path)  # noqa: PTH111 - where there is no home, Path raises


@lru_cache(maxsize=256)
def _lines(text: str) -> tuple[_Lines, ...]:
    """Return the lines of a file, the last ones first: of those that match, the last one counts."""
    lines = [each for line in reversed(text.split("\n")) if (each := _line(line))]
    runs = [(included, [*run]) for included, run in groupby(lines, lambda each: each[2])]
    return tuple(
        _Lines(included, _joined(e[0] for e in run if not e[1]), _joined(e[0] for e in run))
        for included, run in runs
    )


def _joined(regexes: Iterable[str]) -> re.Pattern[str] | None:
    """Return one regular expression for several; those that begin with a star or a path are tried together, which is faster."""
    groups: dict[str, list[str]] = {}
    for each in regexes:
        start = next((e for e in (_STAR, _PATH) if each.startswith(e)), "")
        groups.setdefault(start, []).append(each[len(start) :])
    parts = [f"{start}(?:{'|'.join(each)})" for start, each in groups.items()]
    return re.compile("|".join(parts), re.DOTALL) if parts else None


def _line(line: str) -> tuple[str, bool, bool] | None:
    """Return the regular expression of a line, whether it is about folders alone, and whether it includes what it matches."""
    line = line.removesuffix("\r")
    bare = line.rstrip(" ")
    escapes = len(bare) - len(bare.rstrip("\\"))
    line = line[: len(bare) + escapes % 2]  # `\ ` at the end is a space
    if line.startswith("#"):
        return None
    included = line.startswith("!")
    line = line.removeprefix("!")
    body = line.removesuffix("/")
    is_path = "/" in body
    names = body.removeprefix("/").split("/")
    parts = [each if is_path and each == "**" else _name(each) for each in names]
    if not body or None in parts:
        return None
    whole = [each for each in parts if each is not None]
    regex = rf"{_PATH}{_path(whole)}\Z" if is_path else rf"{whole[0]}\0"
    return regex, body != line, included


def _path(parts: list[str]) -> str:
    """Return the regular expression of a path: what stands between `**`, each at the first place where it fits.

    It has a number of parts that does not vary, so the first place is as good as any: no time is lost by trying others.
    """
    between: list[list[str]] = [[]]
    for each in parts:
        if each == "**":
            between.append([])
        else:
            between[-1].append(each)
    first, *middle = ("/".join(each) for each in between)
    if not middle:
        return first
    last = middle.pop()
    regex = f"{first}/" if first else ""
    regex += "".join(f"(?>{_FOLDERS}{each}/)" for each in middle if each)
    return regex + (_FOLDERS + last if last else r"[^\0]+")


def _name(glob: str) -> str | None:
    """Return the regular expression of one part of a path; None for what matches nothing, such as a bracket left open.

    As in `_path`, what stands between stars is put at the first place where it fits.
    """
    between, at = [""], 0
    while at < len(glob):
        letter, at = glob[at], at + 1
        if letter == "*":
            between += [""] if between[-1] or len(between) == 1 else []
        elif letter == "?":
            between[-1] += _OTHER
        elif letter == "[":
            brackets = _BRACKETS.match(glob, at)
            if not brackets:
                return None
            between[-1] += _class(brackets[1], brackets[2])
            at = brackets.end()
        else:
            if letter == "\\":
                if at == len(glob):
                    return None
                letter, at = glob[at], at + 1
            between[-1] += re.escape(letter)
    first, *middle = between
    if not middle:
        return first or None
    last = middle.pop()
    return first + "".join(f"(?>{_OTHER}*?{each})" for each in middle) + f"{_STAR}{last}"


def _class(negated: str, letters: str) -> str:
    """Return what stands in brackets as a class of characters; as in git, a range that ends before it begins is its beginning."""
    characters = ""
    for each in _LETTERS.finditer(letters):
        first, last, alone = each.groups()
        characters += re.escape(first or alone)
        characters += f"-{re.escape(last)}" if last and last >= first else ""
    return rf"(?![/\0])[{'^' if negated else ''}{characters}]"
