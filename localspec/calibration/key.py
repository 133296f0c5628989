"""Key: everything that a measurement depends on, so that another machine's is never taken for ours.

What only sizes a context (its length, its rows) is left out; what chooses kernels is in.
"""

import hashlib
import json
import platform
import re
from dataclasses import asdict
from pathlib import Path

from localspec.llama.build import build
from localspec.llama.devices import devices, supports_offload
from localspec.options import LoadOptions
from localspec.resources import default_threads

FORMAT = 1
"""Version of what is measured, how, and how it is written down."""

Key = dict[str, str | int | bool | list[str] | None]

_SHA256 = re.compile(r"[0-9a-f]{64}")
_ONLY_SIZES = ("n_ctx", "max_rows")


def key_of(kind: str, file: Path, options: LoadOptions) -> Key:
    """Return the key of a measurement; loads no model.

    Args:
        kind: what is measured.
        file: the model's.
        options: how it is loaded, or would be.

    Raises:
        OSError: the file is not there.
    """
    threads = options.threads or default_threads()
    llama = build()
    effective = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in asdict(options).items()
        if name not in _ONLY_SIZES
    }
    return {
        **effective,
        "format": FORMAT,
        "kind": kind,
        "file": file_identity(file),
        "threads": threads,
        "threads_batch": options.threads_batch or threads,
        "cores": default_threads(),
        "flash_attention": options.attention(on_gpu=_on_gpu(options)),
        "n_batch": options.chunk(on_gpu=_on_gpu(options)),
        "llama_cpp": llama.version,
        "backends": list(llama.backends),
        "features": list(llama.features),
        # The CPU is one of them, and is described by its model.
        "hardware": [f"{device.name}: {device.description}" for device in devices()],
        "machine": platform.machine(),
    }


def digest_of(key: Key) -> str:
    """Return a key's name among files."""
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:40]


def file_identity(file: Path) -> str:
    """Return what tells a model's file from others, without reading it.

    The store calls its files by their sha256. Of others, place, size and time of the last change
    are taken, as a hash: nothing in a cache tells where a user keeps things.
    """
    resolved = file.resolve()
    for path in (file, resolved):
        if path.parent.name == "blobs" and _SHA256.fullmatch(path.name):
            return f"sha256 {path.name}"
    status = resolved.stat()
    seen = f"{resolved}\n{status.st_size}\n{status.st_mtime_ns}"
    return f"seen {hashlib.sha256(seen.encode(errors='surrogateescape')).hexdigest()}"


def _on_gpu(options: LoadOptions) -> bool:
    return supports_offload() if options.gpu_layers is None else options.gpu_layers != 0
