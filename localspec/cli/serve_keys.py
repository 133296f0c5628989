"""The file of `serve --api-key-file`: one key a line, with a name before it and a gate behind it if wanted."""

from pathlib import Path

from localspec.display import notice
from localspec.errors import UsageError

_GATE = "gate="
_LEAST_CHARS = 16
_OTHERS = 0o066


def keys_of(file: str) -> dict[str, str]:
    """Return the keys of a file, each with the name of its gate, empty where it has none of its own.

    A line is `[NAME] KEY [gate=GATE]`; `#` begins a comment. A file that others may read or change is warned about, and not refused:
    secrets that are mounted into containers often are.

    Raises:
        UsageError: it cannot be read, has no keys, or a line that is none; no message has a key in it.
    """
    path = Path(file)
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
        is_open = path.stat().st_mode & _OTHERS
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise UsageError(f"--api-key-file {file} cannot be read: {reason}") from None
    keys: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        words = _words(line)
        gate = words.pop().removeprefix(_GATE) if words[-1:] and _is_gate(words[-1]) else None
        if not words and gate is None:
            continue
        where = f"--api-key-file {file}, line {number}"
        if len(words) not in {1, 2}:
            raise UsageError(
                f"{where} has {len(words)} words: write one key, with a name before it if you like"
            )
        key = words[-1]
        if len(key) < _LEAST_CHARS:
            raise UsageError(
                f"{where}: the key has {len(key)} characters: use {_LEAST_CHARS} or more, such as from `openssl rand -hex 16`"
            )
        if key in keys:
            raise UsageError(f"{where} has the key of an earlier line: remove one of them")
        keys[key] = gate or ""
    if not keys:
        raise UsageError(f"--api-key-file {file} has no keys: write one per line")
    if is_open:
        notice(f"--api-key-file {file} is open to other users: run `chmod 600` on it")
    return keys


def _words(line: str) -> list[str]:
    """Return the words before a comment; a `#` within a word is part of it."""
    words = line.split()
    end = next((at for at, word in enumerate(words) if word.startswith("#")), len(words))
    return words[:end]


def _is_gate(word: str) -> bool:
    return word.startswith(_GATE)
