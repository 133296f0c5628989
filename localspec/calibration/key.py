"""Key: everything that a measurement depends on, so that another machine's is never taken for ours.

What only sizes a context (its length, its rows) is left out of a key; what chooses kernels is in.
"""

import hashlib
import json
import platform
from dataclasses import asdict
from pathlib import Path

from localspec.llama.backend import build
from localspec.llama.devices import devices, placed_on
from localspec.models.store import file_identity
from localspec.options import LoadOptions
from localspec.resources import default_threads

FORMAT = 3
"""Version of what is measured, how, and how it is written down."""

Key = dict[str, str | int | bool | list[str] | None]

_LEFT_OUT = ("n_ctx", "max_rows")


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
    threads, llama = options.threads or default_threads(), build()
    gpus = {device.name for device in placed_on(options)}
    return {
        **{name: value for name, value in asdict(options).items() if name not in _LEFT_OUT},
        "format": FORMAT,
        "kind": kind,
        "file": file_identity(file),
        "lora": lora and file_identity(lora),
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
