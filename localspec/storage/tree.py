"""The files below a folder, without those that git ignores, and which of them a few letters mean."""

import os
import subprocess
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

_MOST_FILES = 20_000
_MOST_S = 2.0
# A list of names is as good as new for so long; every key would ask for one.
_KEPT_S = 10.0
_UNTRACKED = "?"  # git's mark of a file that it does not know
_kept: dict[Path, tuple[float, list[str]]] = {}


def files_below(folder: Path) -> list[str]:
    """Return what `found_below` does, or did a moment ago."""
    folder, now = folder.resolve(), time.monotonic()
    made_s, names = _kept.get(folder, (-_KEPT_S, []))
    if now - made_s >= _KEPT_S:
        names = found_below(folder)
        _kept.clear()
        _kept[folder] = now, names
    return names


def found_below(
    folder: Path, most: int | None = _MOST_FILES, within_s: float | None = _MOST_S
) -> list[str]:
    """Return paths relative to a folder, in no order; hidden ones only where git tracks them.

    Args:
        folder: where to look.
        most: paths to return at most; None returns all.
        within_s: seconds after which the search ends with what it has found; None lets it take its time.
    """
    found = _by_git(folder, None if within_s is None else time.monotonic() + within_s)
    return list(islice(_walked(folder, within_s) if found is None else found, most))


def fuzzy(typed: str, names: Iterable[str], most: int) -> list[str]:
    """Return the names that have these letters in this order, the likeliest first.

    Likelier is what has them together in the name of the file, and first at its beginning; then what is shorter.
    """
    wanted = typed.lower()
    found = [(rank, len(name), name) for name in names if (rank := _rank(wanted, name.lower()))]
    return [name for _, _, name in sorted(found)[:most]]


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


def _by_git(folder: Path, end_s: float | None) -> list[str] | None:
    """Return what git tracks, also if it was removed since, or does not ignore, repositories inside included.

    Outside a repository, `.gitignore` files hold as they would inside one. None where there is no git, or no time.
    """
    try:
        found = _listed(folder, end_s, "--cached")
        if found is None:
            with TemporaryDirectory() as place:
                empty = _empty_repository(Path(place))
                # A home directory may have millions of hidden files.
                found = _listed(folder, end_s, "--exclude=.*", before=(*empty, "--work-tree=."))
    except (OSError, subprocess.SubprocessError):
        return None
    names = dict[str, None]()
    for tag, name in found or ():
        if tag == _UNTRACKED and is_hidden(name):
            continue
        if name.endswith("/"):  # a repository of its own
            names |= dict.fromkeys(name + each for each in _by_git(folder / name, end_s) or ())
        else:
            names[name] = None
    return None if found is None else list(names)


def _empty_repository(place: Path) -> tuple[str, ...]:
    """Make what git takes for a repository with nothing in it; return the option that names it."""
    for each in ("objects", "refs"):
        (place / each).mkdir()
    (place / "HEAD").write_text("ref: refs/heads/none\n")
    return (f"--git-dir={place}",)


def _listed(
    folder: Path, end_s: float | None, *options: str, before: tuple[str, ...] = ()
) -> list[tuple[str, str]] | None:
    """Return git's marks and names of files; None if there is no repository.

    Raises:
        OSError: there is no git.
        subprocess.TimeoutExpired: it takes too long.
    """
    # A checkout may name a program of its own as its file-system monitor, which git would run.
    command = ["git", "-c", "core.fsmonitor=false", "-C", str(folder), *before]
    done = subprocess.run(  # noqa: S603
        [*command, "ls-files", "-z", "-t", "--others", "--exclude-standard", *options],
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=None if end_s is None else max(0.0, end_s - time.monotonic()),
    )
    if done.returncode != 0:
        return None
    parts = done.stdout.decode(errors="replace").split("\0")
    return [(tag, name) for tag, _, name in (each.partition(" ") for each in parts) if name]


def is_hidden(name: str) -> bool:
    """Return whether a file, or a folder that it is in, has a name that begins with a dot."""
    return any(part.startswith(".") for part in name.split("/"))


def _walked(folder: Path, within_s: float | None) -> Iterator[str]:
    end_s = None if within_s is None else time.monotonic() + within_s
    # Text, not paths: of ten thousand files these would take a second.
    start = len(str(folder)) + 1
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        for each in sorted(files):
            if not each.startswith("."):
                yield f"{place}/{each}"[start:]
        if end_s is not None and time.monotonic() > end_s:
            return
