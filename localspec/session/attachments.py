"""`@path` in a message: the file goes into the context, its content in a block of its own behind the text."""

import re
from collections.abc import Iterator
from pathlib import Path

from localspec.errors import UsageError
from localspec.messages import DocumentPart, Message
from localspec.storage.files import size_text
from localspec.storage.tree import files_below, fuzzy

_MENTION = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|(\S+))')
_TRAILING = ".,;:!?)"
_MOST_BYTES = 1 << 20
_SHOWN = 8
# One letter is in nearly every name.
_LEAST_FUZZY = 2
_CHARS_PER_TOKEN = 4  # of English and code; only for the size that is shown


def label(document: DocumentPart) -> str:
    """Return the name and the size of a file that goes into the context, for people."""
    size = file_size(len(document.text.encode()))
    return f"{document.name} · {size} · ≈ {len(document.text) // _CHARS_PER_TOKEN} tokens"


def attached_lines(said: Message) -> Iterator[str]:
    """Yield a line for each file and passage that goes with a question, and one for what the passages take."""
    from localspec.retrieval.citing import files_of, passages_in  # noqa: PLC0415 - a feature that can be taken away

    yield from map(label, files_of(said))
    passages = passages_in([said])
    yield from map(str, passages.values())
    if passages:
        yield f"passages · ≈ {sum(each.tokens for each in passages.values())} tokens"


def attached(text: str, folder: Path) -> list[DocumentPart]:
    """Return the files that a text mentions, each once. A mention of nothing that is there is just text.

    Raises:
        UsageError: a file is there but cannot be put into a context.
    """
    found: dict[Path, DocumentPart] = {}
    for name in _mentions(text):
        path = _existing(name, folder)
        if path is not None and path not in found:
            found[path] = DocumentPart(
                name.rstrip(_TRAILING) if not (folder / name).exists() else name, _read(path, name)
            )
    return list(found.values())


def unmatched(text: str, folder: Path) -> list[str]:
    """Return what a text mentions where there is no file."""
    return [
        f"@{name.rstrip(_TRAILING)}"
        for name in _mentions(text)
        if name.rstrip(_TRAILING) and _existing(name, folder) is None
    ]


def read_document(name: str, folder: Path) -> DocumentPart:
    """Return the file that a name means.

    Raises:
        UsageError: there is none, or it cannot be put into a context.
    """
    path = _existing(name, folder)
    if path is None:
        if _is_folder(name, folder):
            raise UsageError(
                f"{name} is a folder: name files in it, or index it with `localspec index add {name}`"
            )
        raise UsageError(f"there is no file {name}: check the path")
    return DocumentPart(name, _read(path, name))


def file_size(size_bytes: int) -> str:
    """Return the size of a small file as it is told to people."""
    if size_bytes < 1000:
        return f"{size_bytes} B"
    return f"{size_bytes / 1e3:.1f} KB" if size_bytes < 1e6 else size_text(size_bytes)


def completions(typed: str, folder: Path) -> list[tuple[str, str]]:
    """Return what a path that is being typed may become, and the size of each; folders end in a slash.

    First come the paths that begin so, then the files anywhere below the folder that have these letters.

    Args:
        typed: what stands behind the `@`.
        folder: what it is relative to.
    """
    found = _beginning(typed, folder)
    names = {name for name, _ in found}
    if len(typed) >= _LEAST_FUZZY and not typed.startswith(("/", "~", ".")):
        for name in fuzzy(typed, files_below(folder), _SHOWN):
            if name not in names and len(found) < _SHOWN:
                found += [(name, file_size(size))] if (size := _size(folder / name)) >= 0 else []
    return found


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _beginning(typed: str, folder: Path) -> list[tuple[str, str]]:
    parent, _, start = typed.rpartition("/")
    place = Path(f"{parent}/" if typed.startswith("/") else parent or ".").expanduser()
    found = []
    try:
        for each in sorted((folder / place).iterdir()):
            if not each.name.startswith(start) or (each.name.startswith(".") and not start):
                continue
            name = f"{parent}/{each.name}" if "/" in typed else each.name
            found.append(
                (f"{name}/", "") if each.is_dir() else (name, file_size(each.stat().st_size))
            )
            if len(found) == _SHOWN:
                break
    except OSError:  # no such folder, or not ours to read: nothing to offer
        return found
    return found


def _mentions(text: str) -> Iterator[str]:
    for quoted, bare in _MENTION.findall(text):
        yield quoted or bare


def _existing(name: str, folder: Path) -> Path | None:
    for each in dict.fromkeys((name, name.rstrip(_TRAILING))):
        try:
            path = (folder / Path(each).expanduser()).resolve()
            if each and path.is_file():
                return path
        except (OSError, RuntimeError, ValueError):  # too long, without a home, with a NUL
            continue
    return None


def _is_folder(name: str, folder: Path) -> bool:
    try:
        return (folder / Path(name).expanduser()).is_dir()
    except (OSError, RuntimeError, ValueError):
        return False


def _read(path: Path, name: str) -> str:
    try:
        with path.open("rb") as stream:
            raw = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(
            f"{name} cannot be read ({error.strerror}): check its permissions"
        ) from error
    if len(raw) > _MOST_BYTES:
        raise UsageError(
            f"{name} is longer than {file_size(_MOST_BYTES)}: too long for any context, shorten it"
        )
    try:
        return raw.decode("utf-8-sig").rstrip("\n")
    except UnicodeDecodeError:
        raise UsageError(f"{name} is not UTF-8 text: convert it first") from None
