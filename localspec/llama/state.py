"""What a context has evaluated, as files: written in llama.cpp's form, and read by it only after all of it was checked.

A directory holds `target.kv`, which is llama.cpp's own format, and `state.json`, our header: magic and version, what the
state belongs to, size and checksum of the file, and a checksum of the header itself. It is made elsewhere and renamed,
so a directory is whole or absent; and whatever is wrong with it, nothing is restored and nothing breaks.
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

from localspec.errors import PassFailed
from localspec.llama.build import build
from localspec.llama.devices import placed_on
from localspec.llama.native import native
from localspec.llama.sequence import LlamaSequence
from localspec.options import LoadOptions

MAGIC, VERSION = "localspec state", 1
MOST_BYTES = 4 << 30
_SPARE_BYTES = 256 << 20
_MOST_HEADER_BYTES = 64 << 20
_HEADER, _PAYLOAD = "state.json", "target.kv"
_COPY_HEADER_BYTES = 8
"""What llama.cpp puts before a sequence's memory, but not in a file: a magic number, and that of the sequence."""

Json = Mapping[str, Any]


class StateUnfitError(Exception):
    """A state is not there, not whole, or of something else; or cannot be written. The text says why, on one line."""


def size_of_state(context: LlamaSequence) -> int:
    """Return how many bytes a state of what a sequence has evaluated takes, a header aside."""
    size = native.llama_state_seq_get_size(context.handle, context.number)
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
    if not context.n_cached:
        raise StateUnfitError("nothing is evaluated")
    about = {"belongs_to": _belongs_to(context, identity), "extra": extra}
    size = _saved(directory, size_of_state(context), about, partial(_write, context))
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
        about: what else its header says.
    """

    tokens: Sequence[int]
    content: mmap.mmap
    about: Json

    def save(self, directory: Path) -> int:
        """Write it beside whatever else is there, and return its bytes; any thread may. Raises as `save_state` does."""
        return _saved(directory, len(self.content), self.about, self._write)

    def _write(self, path: Path) -> int:
        count = len(self.tokens)
        form = struct.Struct(f"=3I{count}i")
        head = native.LLAMA_STATE_SEQ_MAGIC, native.LLAMA_STATE_SEQ_VERSION, count
        with _private(path).open("wb") as file, memoryview(self.content) as content:
            file.write(form.pack(*head, *self.tokens))
            file.write(content[_COPY_HEADER_BYTES:])
        return count


def state_copy(context: LlamaSequence, identity: str, extra: Json) -> StateCopy:
    """Return what a sequence has evaluated, to be written while it goes on; takes what `save_state` does.

    Raises:
        StateUnfitError: nothing is evaluated, or there is no memory for it.
    """
    if not context.n_cached:
        raise StateUnfitError("nothing is evaluated")
    about = {"belongs_to": _belongs_to(context, identity), "extra": extra}
    try:
        return StateCopy(context.cached, context.copied(), about)
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
    body = _fitting_header(context, directory, identity)
    payload, path = body["payload"], directory / _PAYLOAD
    if not 0 < payload["tokens"] < context.n_ctx:
        raise StateUnfitError(
            f"it has {payload['tokens']} tokens, the context holds {context.n_ctx}"
        )
    try:
        if path.stat().st_size != payload["size_bytes"] or _checksum(path) != payload["blake2b"]:
            raise StateUnfitError("it is damaged")
    except OSError as error:
        raise StateUnfitError(f"it cannot be read ({error.strerror or error})") from error
    context.truncate(0)
    tokens = (ctypes.c_int32 * payload["tokens"])()
    count = ctypes.c_size_t(0)
    read = native.llama_state_seq_load_file(
        context.handle, os.fsencode(path), context.number, tokens, len(tokens), ctypes.byref(count)
    )
    held = list(tokens[: count.value]) if read else []
    if not context.assume(held) or not held:
        raise StateUnfitError("llama.cpp does not take it")
    extra: Json = body["extra"]
    return extra


def extra_of_state(context: LlamaSequence, directory: Path, identity: str) -> Json:
    """Return the `extra` of a state without putting it back; takes and raises what `restore_state` does."""
    extra: Json = _fitting_header(context, directory, identity)["extra"]
    return extra


def _fitting_header(context: LlamaSequence, directory: Path, identity: str) -> dict[str, Any]:
    """Return the header of a state that belongs to a model as it is loaded."""
    body = _header(directory / _HEADER)
    belongs_to = _belongs_to(context, identity)
    if body["belongs_to"] != belongs_to:
        named = body["belongs_to"]
        other = [name for name, value in belongs_to.items() if named.get(name) != value]
        raise StateUnfitError(f"it is of another {', '.join(other) or 'version'}")
    return body


def _saved(directory: Path, size: int, about: Json, write: Callable[[Path], int]) -> int:
    """Write a state that `write` makes a file of, which takes `size` bytes; return the bytes that it takes in fact.

    Args:
        directory: gets it.
        size: of the file, about.
        about: what its header says beside what is in the file.
        write: writes it, and returns how many tokens that are.
    """
    shelf = directory.parent
    try:
        shelf.mkdir(mode=0o700, parents=True, exist_ok=True)
        free = shutil.disk_usage(shelf).free
        if size > MOST_BYTES or size + _SPARE_BYTES > free:
            raise StateUnfitError(f"{size} bytes are needed, but {free} are free")
        made = Path(tempfile.mkdtemp(prefix=".", dir=shelf))  # 0700
        try:
            path = made / _PAYLOAD
            tokens = write(path)
            written = path.stat().st_size
            payload = {"tokens": tokens, "size_bytes": written, "blake2b": _checksum(path)}
            body = {**about, "payload": payload}
            header = json.dumps({"magic": MAGIC, "version": VERSION, **_sealed(body)})
            _private(made / _HEADER).write_text(header)
            _remove(directory)
            made.rename(directory)
        finally:
            _remove(made)
    except OSError as error:
        raise StateUnfitError(f"it cannot be written ({error.strerror or error})") from error
    return written


def _write(context: LlamaSequence, path: Path) -> int:
    """Have llama.cpp write what a sequence has evaluated, piece by piece: there is no second copy of it in memory."""
    tokens = context.cached
    array = (ctypes.c_int32 * len(tokens))(*tokens)
    written = native.llama_state_seq_save_file(
        context.handle, os.fsencode(_private(path)), context.number, array, len(tokens)
    )
    if not written or written != path.stat().st_size:
        raise StateUnfitError("llama.cpp could not write it")
    return len(tokens)


def _belongs_to(context: LlamaSequence, identity: str) -> dict[str, Any]:
    """Return everything that has to be the same for the state to mean, and to round, the same."""
    options, made_by = context.model.options, build()
    return {
        "model": identity,
        "llama.cpp": [made_by.version, *made_by.backends, *made_by.features],
        "cache type": options.kv_type,
        "attention": options.attention(on_gpu=context.model.on_gpu),
        "kernels": [options.repack, options.gpu_layers, list(options.devices)],
        "chunk size": options.chunk(on_gpu=context.model.on_gpu),
        **(_placed(options) if context.model.on_gpu else {}),
    }


def _placed(options: LoadOptions) -> dict[str, Any]:
    how = [options.split, options.tensor_split, options.cpu_moe, options.kv_offload]
    return {"placed": [*(device.identity for device in placed_on(options)), *how]}


def _header(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MOST_HEADER_BYTES:
            raise StateUnfitError("it is damaged")
        document = json.loads(path.read_bytes())
        if document["magic"] != MAGIC or document["version"] != VERSION:
            raise StateUnfitError("it is of another version of localspec")
        body: dict[str, Any] = document["body"]
        if document["blake2b"] != _sealed(body)["blake2b"] or not _is_whole(body):
            raise StateUnfitError("it is damaged")
    except FileNotFoundError:
        raise StateUnfitError("there is none") from None
    except OSError as error:
        raise StateUnfitError(f"it cannot be read ({error.strerror or error})") from error
    except (ValueError, KeyError, TypeError, RecursionError):
        raise StateUnfitError("it is damaged") from None
    return body


def _is_whole(body: Json) -> bool:
    """Say whether a header says what ours do; the seal can be made by anybody."""
    payload, kinds = body["payload"], {"tokens": int, "size_bytes": int, "blake2b": str}
    return (
        isinstance(body["belongs_to"], dict)
        and isinstance(body["extra"], dict)
        and all(type(payload[name]) is kind for name, kind in kinds.items())
    )


def _sealed(body: Json) -> dict[str, Any]:
    canonical = json.dumps(body, sort_keys=True).encode()
    return {"blake2b": hashlib.blake2b(canonical, digest_size=32).hexdigest(), "body": body}


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32)).hexdigest()


def _private(path: Path) -> Path:
    """Make a file that only its owner can read, and return it: whoever opens it keeps that."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    return path


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()
