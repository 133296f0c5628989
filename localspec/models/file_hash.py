"""The sha256 of a model that is about to be loaded: the store knows it, or it is computed once and kept.

Of files elsewhere it is kept under their place, size and time of the last change, in `hashes.json`
of the data directory; what is wrong with that file costs only the time to compute them again.
"""

import hashlib
import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from localspec.errors import LocalspecError
from localspec.models.entries import SHA256
from localspec.models.gguf import other_shards, read_header
from localspec.storage.files import read_bounded, write_atomic
from localspec.storage.locks import locked
from localspec.storage.paths import shown

_INDEX = "hashes.json"
_CHUNK_BYTES = 1 << 22
_MOST_LINKS = 16
_MOST_BYTES = 16 << 20


def model_sha256(file: Path, root: Path, on_share: Callable[[float], None] = lambda _: None) -> str:
    """Return the sha256 of a model; of one in several files, that over their digests, as in `ModelEntry`.

    Args:
        file: the model's, or the first of several.
        root: the data directory.
        on_share: called with the share of a file that is read, 0 to 1; may raise to stop it.

    Raises:
        LocalspecError: a file cannot be read.
    """
    files = [file, *other_shards(file, read_header(file))]
    digests = [_stored(each) or _kept(each, root, on_share) for each in files]
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def _stored(file: Path) -> str | None:
    """Return the sha256 by which the store, or the hub's cache, calls a file; None if neither has it."""
    for _ in range(_MOST_LINKS):
        if file.parent.name == "blobs" and re.fullmatch(SHA256, file.name):
            return file.name
        if not file.is_symlink():
            return None
        file = file.parent / file.readlink()
    return None


def _kept(file: Path, root: Path, on_share: Callable[[float], None]) -> str:
    key = _place(file)
    known = _index(root).get(key)
    if isinstance(known, str) and re.fullmatch(SHA256, known):
        return known
    digest = _computed(file, on_share)
    with suppress(OSError), locked(root):
        write_atomic(root / _INDEX, json.dumps({**_index(root), key: digest}, indent=1).encode())
    return digest


def _index(root: Path) -> dict[str, object]:
    with suppress(OSError, ValueError, RecursionError):
        index = json.loads(read_bounded(root / _INDEX, _MOST_BYTES))
        return index if isinstance(index, dict) else {}
    return {}


def _place(file: Path) -> str:
    status = file.resolve().stat()
    # As a hash: nothing in a cache tells where a user keeps things.
    text = f"{file.resolve()}\n{status.st_size}\n{status.st_mtime_ns}"
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


def _computed(file: Path, on_share: Callable[[float], None]) -> str:
    digest, done = hashlib.sha256(), 0
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                digest.update(chunk)
                done += len(chunk)
                on_share(min(done / size, 1.0))
    except OSError as error:
        raise LocalspecError(
            f"{shown(file)} cannot be read ({error.strerror}): check the disk"
        ) from error
    return digest.hexdigest()
