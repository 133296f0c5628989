"""What a context has evaluated, as files: written by llama.cpp, and read by it only after all of it was checked.

A directory holds `target.kv`, which is llama.cpp's own format, and `state.json`, our header: magic and version, what the
state belongs to, size and checksum of the file, and a checksum of the header itself. It is made elsewhere and renamed,
so a directory is whole or absent; and whatever is wrong with it, nothing is restored and nothing breaks.
"""

import ctypes
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from localspec.llama.build import build
from localspec.llama.native import native
from localspec.llama.sequence import LlamaSequence

MAGIC, VERSION = "localspec state", 1
MOST_BYTES = 4 << 30
_SPARE_BYTES = 256 << 20
_MOST_HEADER_BYTES = 64 << 20
_HEADER, _PAYLOAD = "state.json", "target.kv"

Json = Mapping[str, Any]


class StateUnfitError(Exception):
    """A state is not there, not whole, or of something else; or cannot be written. The text says why, on one line."""


def size_of_state(context: LlamaSequence) -> int:
    """Return how many bytes a state of what a sequence has evaluated takes, a header aside."""
    size = native.llama_state_seq_get_size(context.handle, context.number)
    return int(size) + 4 * context.n_cached


def save_state(
    context: LlamaSequence, directory: Path, identity: str, extra: Json, *, beside: bool = False
) -> int:
    """Write what a sequence has evaluated; return the bytes that it takes.

    Args:
        context: the target's sequence.
        directory: gets the state.
        identity: what the model is, such as the sha256 of its file.
        extra: what `restore_state` is to return; must fit into JSON.
        beside: whether what lies beside it in its parent stays; else there is one state at most.

    Raises:
        StateUnfitError: nothing is evaluated, there is no room, or the disk fails.
    """
    tokens = context.cached
    if not tokens:
        raise StateUnfitError("nothing is evaluated")
    shelf = directory.parent
    size = size_of_state(context)
    try:
        shelf.mkdir(mode=0o700, parents=True, exist_ok=True)
        free = shutil.disk_usage(shelf).free
        if size > MOST_BYTES or size + _SPARE_BYTES > free:
            raise StateUnfitError(f"{size} bytes are needed, but {free} are free")
        made = Path(tempfile.mkdtemp(prefix=".", dir=shelf))  # 0700
        try:
            payload = _written_payload(context, made / _PAYLOAD)
            body = {
                "belongs_to": _belongs_to(context, identity),
                "payload": payload,
                "extra": extra,
            }
            header = json.dumps({"magic": MAGIC, "version": VERSION, **_sealed(body)})
            _private(made / _HEADER).write_text(header)
            for other in shelf.iterdir():
                if other != made and (other == directory or not beside):
                    _remove(other)
            made.rename(directory)
        finally:
            _remove(made)
    except OSError as error:
        raise StateUnfitError(f"it cannot be written ({error.strerror or error})") from error
    return int(payload["size_bytes"])


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


def _written_payload(context: LlamaSequence, path: Path) -> dict[str, Any]:
    tokens = context.cached
    array = (ctypes.c_int32 * len(tokens))(*tokens)
    # llama.cpp writes piece by piece: no second copy of the cache in memory.
    written = native.llama_state_seq_save_file(
        context.handle, os.fsencode(_private(path)), context.number, array, len(tokens)
    )
    size_bytes = path.stat().st_size
    if not written or written != size_bytes:
        raise StateUnfitError("llama.cpp could not write it")
    return {"tokens": len(tokens), "size_bytes": size_bytes, "blake2b": _checksum(path)}


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
    }


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
