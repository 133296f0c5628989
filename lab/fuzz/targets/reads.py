"""A block of what was read, as the prompt cache has it in a file: used only if it is whole and under its own name."""

import hashlib

from lab.fuzz.target import FoundError, scratch
from localspec.storage.read_store import _HEAD, _MAGIC, Shelf, UnusableError

_SIZE = 4
_TOKENS = (1, 2, 3, 4)


def _file() -> tuple[str, bytes]:
    """Return the name and the content of a block as it is written."""
    parent = _SHELF.beginning("")
    name = f"{parent}.{_SHELF.child(parent, _TOKENS)}"
    _SHELF.write(name, _TOKENS, b"about", [b"cells"])
    return name, (_SHELF._path / name).read_bytes()


_SHELF = Shelf(scratch(), "model", _SIZE)
_NAME, _WHOLE = _file()
# A checksum can be made by anybody; what stands behind this mark gets its own before it is read.
_SEAL = b"|seal|"
SEEDS = (_WHOLE, _WHOLE[:-1], _SEAL + _WHOLE[len(_MAGIC) :], b"")


def _sealed(data: bytes) -> bytes:
    """Return a file with a right checksum of whatever it says."""
    if not data.startswith(_SEAL) or len(data) < len(_SEAL) + _HEAD.size:
        return data
    _, *sizes = _HEAD.unpack_from(data, len(_SEAL))
    rest = data[len(_SEAL) + _HEAD.size :]
    whole = hashlib.sha256(_HEAD.pack(b"", *sizes) + rest)
    return _MAGIC + _HEAD.pack(whole.digest(), *sizes) + rest


def run(data: bytes) -> None:
    _SHELF.write(_NAME, _TOKENS, b"about", [b"cells"])
    file = _SHELF._path / _NAME
    file.write_bytes(_sealed(data))
    try:
        chain = _SHELF.chain([*_TOKENS, 5], "")
        stored = _SHELF.read(_NAME)
    except UnusableError:
        if file.exists():
            raise FoundError("what is of no use stays") from None
        return
    if stored.tokens != _TOKENS or any(each.common > _SIZE for each in chain):
        raise FoundError("the tokens are not those of its name")
