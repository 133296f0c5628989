"""Update: an index is brought up to date with its files, a batch of them in each transaction.

What is killed meanwhile has done whole batches; the next update goes on behind them.
"""

import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from localspec.errors import LocalspecError, UsageError
from localspec.gates.gate import secrets_gate
from localspec.retrieval.index import Index, KnownFile
from localspec.retrieval.passages import NumberedLine, passages
from localspec.retrieval.reading import NotText, Unreadable, most_bytes, read
from localspec.storage.database import reason_of
from localspec.storage.files import read_bounded
from localspec.storage.paths import config_dir, data_dir, shown
from localspec.storage.tree import is_hidden, list_files

_BATCH_FILES, _BATCH_S = 200, 2.0
# A file may be written again within one tick of its file system's clock.
_TICK_NS = 100_000_000


@dataclass(slots=True)
class Changes:
    """What an update did, as it goes on.

    Args:
        total: files that belong in the index.
        done: of them, so far.
        added: files that were not in it.
        changed: files that were in it with another content.
        same: files that were in it as they are.
        removed: files that are gone, or do not belong in it any more.
        not_text: files of folders that hold no text.
        unread: files whose text cannot be had, and why.
        missing: what was added and is not there now, such as a disk that is not mounted: its files stay as they were.
    """

    total: int = 0
    done: int = 0
    added: int = 0
    changed: int = 0
    same: int = 0
    removed: int = 0
    not_text: list[str] = field(default_factory=list)
    unread: list[tuple[str, str]] = field(default_factory=list)
    missing: list[Path] = field(default_factory=list)

    @property
    def news(self) -> dict[str, int]:
        """What was changed in the index, by what became of files; only what there was any of."""
        counts = {"added": self.added, "changed": self.changed, "removed": self.removed}
        return {what: count for what, count in counts.items() if count}


def add(
    index: Index, paths: Sequence[Path], report: Callable[[Changes], None] = lambda _: None
) -> Changes:
    """Add files and folders to an index, and bring all of it up to date; see `update`.

    Raises:
        UsageError: one of them is not there, or has no text.
    """
    named = [each.resolve() for each in paths]
    for each in named:
        if not each.exists():
            raise UsageError(f"{shown(each)} is not there: check the path")
        if each.is_file():
            try:
                read(each.name, _content(each))
            except (OSError, Unreadable) as error:
                raise UsageError(
                    f"{shown(each)} cannot be indexed ({reason_of(error)}): leave it out"
                ) from error
    index.add_roots(named)
    return update(index, report)


def update(index: Index, report: Callable[[Changes], None] = lambda _: None) -> Changes:
    """Bring an index up to date with its files.

    Of folders, hidden files, links, what `.gitignore` names, and what is no text is left out. Keys, tokens and passwords are masked in what
    is indexed. A file whose size and time of change are as they were is not read; one that is read and has the same sha256 is not cut again.

    Args:
        index: the index.
        report: called after each file.

    Raises:
        LocalspecError: the index cannot be written, or its disk would be full. What the log took is given back then.
    """
    try:
        return _update(index, report)
    except LocalspecError:
        index.empty_log()
        raise


def _update(index: Index, report: Callable[[Changes], None]) -> Changes:
    changes = Changes()
    roots, known = index.roots(), index.known()
    changes.missing = [each for each in roots if not each.exists()]
    wanted = dict(_wanted([each for each in roots if each not in changes.missing]))
    changes.total = len(wanted)
    away = tuple(f"{each}/" for each in changes.missing)
    gone = [each for each in known if each not in wanted and not f"{each}/".startswith(away)]
    changes.removed = len(gone)
    with index.writing():
        for path in gone:
            index.remove(path)
    batch, begun_s = list[_Write](), time.monotonic()
    for path, name in wanted.items():
        changes.done += 1
        try:
            write = _change(index, Path(path), name, known.get(path), changes)
        except (OSError, Unreadable) as error:
            if isinstance(error, NotText):
                changes.not_text.append(path)
            else:
                changes.unread.append((path, reason_of(error)))
            write = _Write(partial(index.remove, path)) if path in known else None
        report(changes)
        if write:
            batch.append(write)
        if len(batch) >= _BATCH_FILES or time.monotonic() - begun_s > _BATCH_S:
            _write(index, batch)
            begun_s = time.monotonic()
    _write(index, batch)
    return changes


class _Write(NamedTuple):
    """A change of the index, and how many bytes of text it writes."""

    make: Callable[[], None]
    size_bytes: int = 0


def _write(index: Index, batch: list[_Write]) -> None:
    """Write what a batch holds in one transaction, and empty it."""
    if batch:
        index.require_room(sum(each.size_bytes for each in batch))
        with index.writing():
            for each in batch:
                each.make()
        batch.clear()


def _change(
    index: Index, path: Path, name: str, before: KnownFile | None, changes: Changes
) -> _Write | None:
    """Count a file, and return what writes it into the index; None where it is there as it is.

    Raises:
        OSError: it cannot be read.
        Unreadable: it has no text.
    """
    now, now_ns = path.stat(), time.time_ns()
    if "/" in name and path.suffix.lower() == ".svg":  # one that was named is wanted as text
        raise NotText("it is a picture")
    if before and (before.size, before.changed_ns) == (now.st_size, now.st_mtime_ns):
        changes.same += 1
        return None
    content = _content(path)
    changed_ns = now.st_mtime_ns if now.st_mtime_ns < now_ns - _TICK_NS else 0
    known = KnownFile(len(content), changed_ns, hashlib.sha256(content).digest())
    if before and before.sha256 == known.sha256:
        changes.same += 1
        return _Write(partial(index.touch, str(path), changed_ns))
    lines, code = read(path.name, content)
    parts = passages(_masked(lines), code=code)
    changes.changed += before is not None
    changes.added += before is None
    size_bytes = sum(len(each.text.encode(errors="replace")) for each in parts)
    return _Write(partial(index.put, str(path), known, name, parts), size_bytes)


def _masked(lines: list[NumberedLine]) -> list[NumberedLine]:
    """Return as many lines, without keys and passwords: also those of several lines, which a cut would hide from the gate."""
    gate, text = secrets_gate(), "\n".join(each.text for each in lines)
    parts, at = list[str](), 0
    for first, end in gate.hidden(text):
        hidden = text[first:end]
        label = gate.cleaned(hidden)
        # Alone it may not be what it is where it stands.
        is_label = label.startswith("[masked") and label.endswith("]") and "\n" not in label
        parts += [text[at:first], label if is_label else "[masked]", "\n" * hidden.count("\n")]
        at = end
    if not parts:
        return lines
    masked = "".join([*parts, text[at:]]).split("\n")
    return [NumberedLine(line.number, each) for line, each in zip(lines, masked, strict=True)]


def _wanted(roots: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """Yield the files that belong in an index, each with its name: that of what was added, and the path in it."""
    own = tuple(f"{each.resolve()}/" for each in (data_dir(), config_dir()))
    for root in roots:
        if root.is_file():
            yield str(root), root.name
            continue
        for name in sorted(list_files(root, most=None, within_s=None)):
            path = f"{root}/{name}"
            if not is_hidden(name) and not path.startswith(own) and _is_plain(path):
                yield path, f"{root.name}/{name}"


def _is_plain(path: str) -> bool:
    """Return whether there is a file, and no link to one, with a name that can be kept."""
    try:
        path.encode()
        return stat.S_ISREG(os.lstat(path).st_mode)
    except (OSError, UnicodeEncodeError):  # gone meanwhile; of bytes that are no UTF-8
        return False


def _content(path: Path) -> bytes:
    return read_bounded(path, most_bytes(path.name))
