"""Key: everything that a measurement depends on, so that another machine's is never taken for ours; and the cache.

What only sizes a context (its length, its rows) is left out of a key; what chooses kernels is in. In the cache are
measurements as small JSON files, one for each key, in `calibration/` of the data directory. A file that is damaged,
foreign, or of another version counts as none: what it held can be measured again, so nothing here is worth an error.
"""

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from localspec.llama.build import build
from localspec.llama.devices import devices, placed_on
from localspec.models.store import place_hash, stored_sha256
from localspec.options import LoadOptions
from localspec.resources import default_threads
from localspec.storage.files import private_directory, read_bounded, write_atomic

FORMAT = 1
"""Version of what is measured, how, and how it is written down."""

Key = dict[str, str | int | bool | list[str] | None]

# What sizes a context.
_LEFT_OUT = ("n_ctx", "max_rows")
_SINCE_PLACED = ("split", "tensor_split", "cpu_moe", "kv_offload")
"""Left out where they are as usual, so that what was measured before there were these stays known."""


def key_of(kind: str, file: Path, options: LoadOptions, lora: Path | None = None) -> Key:
    """Return the key of a measurement; loads no model.

    Args:
        kind: what is measured.
        file: the model's.
        options: how it is loaded, or would be.
        lora: file of its adapter; None without one.

    Raises:
        OSError: the file is not there.
    """
    threads = options.threads or default_threads()
    llama, usual = build(), LoadOptions()
    gpus = {device.name for device in placed_on(options)}
    effective = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in asdict(options).items()
        if name not in _LEFT_OUT and not (name in _SINCE_PLACED and value == getattr(usual, name))
    }
    return {
        **effective,
        "format": FORMAT,
        "kind": kind,
        "file": file_identity(file),
        **({} if lora is None else {"lora": file_identity(lora)}),
        "threads": threads,
        "threads_batch": options.threads_batch or threads,
        "cores": default_threads(),
        "flash_attention": options.attention(on_gpu=bool(gpus)),
        "n_batch": options.chunk(on_gpu=bool(gpus)),
        "llama_cpp": llama.version,
        "backends": list(llama.backends),
        "features": list(llama.features),
        # The CPU is described by its model.
        "hardware": [each.identity for each in devices() if not each.is_gpu or each.name in gpus],
        "machine": platform.machine(),
    }


def digest_of(key: Key) -> str:
    """Return a key's name among files."""
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:40]


def file_identity(file: Path) -> str:
    """Return what tells a model's file from others, without reading it.

    The store calls its files by their sha256.
    """
    sha256 = stored_sha256(file)
    return f"sha256 {sha256}" if sha256 else f"seen {place_hash(file)}"


_MOST_BYTES = 1 << 16


def load(directory: Path, key: Key) -> Any:
    """Return what was stored under a key, as JSON gave it and not to be trusted; None if nothing."""
    try:
        entry = json.loads(read_bounded(directory / f"{digest_of(key)}.json", _MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return entry.get("value") if isinstance(entry, dict) and entry.get("key") == key else None


def store(directory: Path, key: Key, value: Mapping[str, object]) -> None:
    """Write a measurement down, readable by its owner only; of two at once, the last one stays.

    Raises:
        OSError: the directory does not take it.
    """
    private_directory(directory)
    content = json.dumps({"key": key, "value": value}, indent=1)
    write_atomic(directory / f"{digest_of(key)}.json", content.encode())
