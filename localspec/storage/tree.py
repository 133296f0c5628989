"""The files below a folder, without those that are ignored, and which of them a few letters mean."""

import os
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

_MOST_FILES = 20_000
_MOST_S = 2.0
# A list of names is as good as new for so long; every key would ask for one.
_CACHED_S = 10.0
_cached: dict[Path, tuple[float, list[str]]] = {}


def files_below(folder: Path) -> list[str]:
    """Return what `list_files` does, or did a moment ago."""
    folder, now = folder.resolve(), time.monotonic()
    made_s, names = _cached.get(folder, (-_CACHED_S, []))
    if now - made_s >= _CACHED_S:
        names = list_files(folder)
        _cached.clear()
        _cached[folder] = now, names
    return names


def list_files(
    folder: Path, most: int | None = _MOST_FILES, within_s: float | None = _MOST_S
) -> list[str]:
    """Return paths relative to a folder, in no order, without hidden ones and what `.gitignore` files leave out.

    Repositories inside are part of it, with rules of their own.

    Args:
        folder: where to look; it may be hidden itself.
        most: paths to return at most; None returns all.
        within_s: seconds after which the search ends with what it has; None lets it take its time.
    """
    end_s = None if within_s is None else time.monotonic() + within_s
    return list(islice(_below(folder.resolve(), end_s), most))


def fuzzy(typed: str, names: Iterable[str], most: int) -> list[str]:
    """Return the names that have these letters in this order, the likeliest first.

    Likelier is what has them together in the name of the file, and first at its beginning; then what is shorter.
    """
    wanted = typed.lower()
    ranked = [(rank, len(name), name) for name in names if (rank := _rank(wanted, name.lower()))]
    return [name for _, _, name in sorted(ranked)[:most]]


def _rank(wanted: str, name: str) -> int:
    """Return 1 for the likeliest, 4 for the least likely, 0 for no match."""
    file = name.rpartition("/")[2]
    if file.startswith(wanted):
        return 1
    if wanted in file:
        return 2
    if wanted in name:
        return 3
    letters = iter(name)
    return 4 if all(letter in letters for letter in wanted) else 0


def is_hidden(name: str) -> bool:
    """Return whether a file, or a folder that it is in, has a name that begins with a dot."""
    return any(part.startswith(".") for part in name.split("/"))


def _below(folder: Path, end_s: float | None) -> Iterator[str]:
    """Yield what `list_files` returns, what is near first; links are names as others are, and lead nowhere."""
    from localspec.storage.ignore import rules_above  # noqa: PLC0415 - a chat's start lists no files

    rules_of_folder = rules_above(folder)
    if rules_of_folder is None:
        return
    above, start = rules_of_folder
    waiting = deque([("", above)])
    while waiting:
        place, rules = waiting.popleft()
        rules = rules.inside(f"{folder}/{place}", len(start) + len(place))
        with suppress(OSError), os.scandir(f"{folder}/{place}") as entries:
            for each in entries:
                if end_s is not None and time.monotonic() > end_s:
                    return
                name = each.name
                if name.startswith(".") or not _is_text(name):
                    continue
                is_folder = each.is_dir(follow_symlinks=False)
                if rules.ignores(f"{start}{place}{name}", name, is_folder=is_folder):
                    continue
                if is_folder:
                    waiting.append((f"{place}{name}/", rules))
                else:
                    yield place + name


def _is_text(name: str) -> bool:
    """Return whether a name is one that can be written as text."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
