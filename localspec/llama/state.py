"""What a context has evaluated, as files: written in llama.cpp's form, and read by it only after all of it was checked.

A directory holds `target.kv`, which is llama.cpp's own format, and `state.json`, our header behind a checksum of itself.
It is made elsewhere and renamed, so a directory is whole or absent; and whatever is wrong with it, nothing is restored
and nothing breaks.
"""

import ctypes
import hashlib
import json
import mmap
import os
import shutil
import struct
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from localspec.errors import PassFailed
from localspec.llama.backend import build
from localspec.llama.devices import placed_on
from localspec.llama.native import native
from localspec.llama.sequence import LlamaSequence

VERSION = 2
MOST_BYTES = 4 << 30
_SPARE_BYTES = 256 << 20
_MOST_HEADER_BYTES = 64 << 20
_HEADER, _PAYLOAD = "state.json", "target.kv"
_COPY_HEADER_BYTES = 8
"""What llama.cpp puts before a sequence's memory, but not in a file: a magic number, and that of the sequence."""

Json = Mapping[str, Any]


class StateUnfitError(Exception):
    """A state is not there, not whole, or of something else; or cannot be written. The text says why, on one line."""


class Header(msgspec.Struct):
    """What is written beside llama.cpp's file.

    Args:
        belongs_to: all that has to be the same for the state to mean, and to round, the same.
        extra: what `restore_state` is to return.
        tokens: how many are evaluated.
        blake2b: of llama.cpp's file.
    """

    belongs_to: dict[str, Any]
    extra: dict[str, Any]
    tokens: int
    blake2b: str


def size_of_state(context: LlamaSequence) -> int:
    """Return how many bytes a state of what a sequence has evaluated takes, a header aside."""
    size = native.llama_state_seq_get_size(context.native.handle, context.number)
    return int(size) + 4 * context.n_cached


def save_state(context: LlamaSequence, directory: Path, identity: str, extra: Json) -> int:
    """Write what a sequence has evaluated, in place of all else that lies beside it; return the bytes that it takes.

    Args:
        context: the target's sequence.
        directory: gets the state.
        identity: what the model is, such as the sha256 of its file.
        extra: what `restore_state` is to return; must fit into JSON.

    Raises:
        StateUnfitError: nothing is evaluated, there is no room, or the disk fails.
    """
    header = _new_header(context, identity, extra)
    size = _saved(directory, size_of_state(context), header, partial(_write, context))
    with suppress(OSError):
        for other in directory.parent.iterdir():
            if other != directory:
                _remove(other)
    return size


@dataclass(frozen=True, slots=True, eq=False)
class StateCopy:
    """What a sequence had evaluated when this was made; it may evaluate other things since.

    Args:
        tokens: that were evaluated.
        content: what llama.cpp's memory held.
        header: what is written beside it.
    """

    tokens: Sequence[int]
    content: mmap.mmap
    header: Header

    def save(self, directory: Path) -> int:
        """Write it beside whatever else is there, and return its bytes; any thread may. Raises as `save_state` does."""
        return _saved(directory, len(self.content), self.header, self._write)

    def _write(self, path: Path) -> None:
        count = len(self.tokens)
        head = native.LLAMA_STATE_SEQ_MAGIC, native.LLAMA_STATE_SEQ_VERSION, count
        with path.open("wb") as file, memoryview(self.content) as content:
            file.write(struct.pack(f"=3I{count}i", *head, *self.tokens))
            file.write(content[_COPY_HEADER_BYTES:])


def state_copy(context: LlamaSequence, identity: str, extra: Json) -> StateCopy:
    """Return what a sequence has evaluated, to be written while it goes on; takes what `save_state` does.

    Raises:
        StateUnfitError: nothing is evaluated, or there is no memory for it.
    """
    header = _new_header(context, identity, extra)
    try:
        return StateCopy(context.cached, context.native.copied(context.number), header)
    except (PassFailed, OSError) as error:
        raise StateUnfitError(f"it cannot be copied ({error})") from error


def restore_state(context: LlamaSequence, directory: Path, identity: str) -> Json:
    """Put back what was evaluated; return the `extra` of it.

    The context is empty where llama.cpp fails, and as it was where a check does.

    Args:
        context: the target's, of the same model and options.
        directory: where `save_state` wrote.
        identity: what the model is.

    Raises:
        StateUnfitError: there is none, it is not whole, or it belongs to something else.
    """
    header, path = _fitting_header(context, directory, identity), directory / _PAYLOAD
    if not 0 < header.tokens < context.n_ctx:
        raise StateUnfitError(f"it has {header.tokens} tokens, the context holds {context.n_ctx}")
    try:
        if _file_checksum(path) != header.blake2b:
            raise StateUnfitError("it is damaged")
    except OSError as error:
        raise StateUnfitError(f"it cannot be read ({error.strerror or error})") from error
    context.truncate(0)
    tokens, count = (ctypes.c_int32 * header.tokens)(), ctypes.c_size_t(0)
    handle, number = context.native.handle, context.number
    read = native.llama_state_seq_load_file(
        handle, os.fsencode(path), number, tokens, len(tokens), ctypes.byref(count)
    )
    context.native.filled(number)
    held = list(tokens[: count.value]) if read else []
    if not context.assume(held) or not held:
        raise StateUnfitError("llama.cpp does not take it")
    return header.extra


def extra_of_state(context: LlamaSequence, directory: Path, identity: str) -> Json:
    """Return the `extra` of a state without putting it back; takes and raises what `restore_state` does."""
    return _fitting_header(context, directory, identity).extra


def _new_header(context: LlamaSequence, identity: str, extra: Json) -> Header:
    if not context.n_cached:
        raise StateUnfitError("nothing is evaluated")
    return Header(_belongs_to(context, identity), dict(extra), context.n_cached, "")


def _fitting_header(context: LlamaSequence, directory: Path, identity: str) -> Header:
    """Return the header of a state that belongs to a model as it is loaded."""
    path = directory / _HEADER
    try:
        if path.stat().st_size > _MOST_HEADER_BYTES:
            raise StateUnfitError("it is damaged")
        checksum, _, body = path.read_bytes().partition(b"\n")
        if checksum != _checksum(body):
            raise StateUnfitError("it is damaged")
        header = msgspec.convert(json.loads(body), Header)
    except FileNotFoundError:
        raise StateUnfitError("there is none") from None
    except OSError as error:
        raise StateUnfitError(f"it cannot be read ({error.strerror or error})") from error
    except (ValueError, RecursionError, msgspec.ValidationError):
        raise StateUnfitError("it is damaged") from None
    belongs_to = _belongs_to(context, identity)
    other = [name for name, value in belongs_to.items() if header.belongs_to.get(name) != value]
    if other:
        raise StateUnfitError(f"it is of another {', '.join(other)}")
    return header


def _saved(directory: Path, size: int, header: Header, write: Callable[[Path], None]) -> int:
    """Write a state whose file `write` makes, of about so many bytes; return the bytes that it takes in fact."""
    shelf = directory.parent
    try:
        shelf.mkdir(mode=0o700, parents=True, exist_ok=True)
        free = shutil.disk_usage(shelf).free
        if size > MOST_BYTES or size + _SPARE_BYTES > free:
            raise StateUnfitError(f"{size} bytes are needed, but {free} are free")
        made = Path(tempfile.mkdtemp(prefix=".", dir=shelf))  # 0700
        try:
            path = made / _PAYLOAD
            for each in (path, made / _HEADER):
                each.touch(0o600, exist_ok=False)
            write(path)
            header.blake2b = _file_checksum(path)
            body = json.dumps(msgspec.to_builtins(header)).encode()
            (made / _HEADER).write_bytes(_checksum(body) + b"\n" + body)
            written = path.stat().st_size
            _remove(directory)
            made.rename(directory)
        finally:
            _remove(made)
    except OSError as error:
        raise StateUnfitError(f"it cannot be written ({error.strerror or error})") from error
    return written


def _write(context: LlamaSequence, path: Path) -> None:
    """Have llama.cpp write what a sequence has evaluated, piece by piece: there is no second copy of it in memory."""
    tokens, handle = context.cached, context.native.handle
    array = (ctypes.c_int32 * len(tokens))(*tokens)
    written = native.llama_state_seq_save_file(
        handle, os.fsencode(path), context.number, array, len(tokens)
    )
    if not written or written != path.stat().st_size:
        raise StateUnfitError("llama.cpp could not write it")


def _belongs_to(context: LlamaSequence, identity: str) -> dict[str, Any]:
    """Return everything that has to be the same for the state to mean, and to round, the same."""
    options, on_gpu, made_by = context.model.options, context.model.on_gpu, build()
    placed = [options.split, options.tensor_split, options.cpu_moe, options.kv_offload]
    return {
        "version of localspec": VERSION,
        "model": identity,
        "llama.cpp": [made_by.version, *made_by.backends, *made_by.features],
        "cache type": options.kv_type,
        "attention": options.attention(on_gpu=on_gpu),
        "kernels": [options.repack, options.gpu_layers, list(options.devices)],
        "chunk size": options.chunk(on_gpu=on_gpu),
        "placed": [device.identity for device in placed_on(options)] + placed if on_gpu else [],
    }


def _checksum(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=32).hexdigest().encode()


def _file_checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32)).hexdigest()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()
