"""Whether this machine has memory for a candidate beside the target, asked before llama.cpp is."""

from math import prod
from pathlib import Path

from localspec.errors import LocalspecError
from localspec.launch.fit import free_memory
from localspec.models.gguf import GgufHeader, read_model
from localspec.models.memory import Settings, model_shape, predict
from localspec.options import LoadOptions
from localspec.storage.files import size_text

_WORKING_BYTES = 6
"""Of an element of the largest tensor, while its type is changed: as F32, and packed."""


def require_memory(file: Path, options: LoadOptions) -> None:
    """See that a model fits into the memory that is free; nothing is said of one whose header leaves out its sizes.

    Args:
        file: the model's.
        options: how it is to be loaded.

    Raises:
        LocalspecError: it does not; the line says what is missing.
    """
    shape = model_shape(read_model(file))
    if shape is None:
        return
    settings = Settings(
        n_ctx=options.n_ctx or 0,
        n_batch=options.chunk(on_gpu=False),
        rows=options.max_rows,
        kv_type=options.kv_type,
        flash_attention=options.attention(on_gpu=False) is not False,
        mapped_and_repacked=options.load_mode == "mmap" and options.repack,
    )
    _require(predict(shape, settings)[0].total_bytes, options)


def require_memory_to_make(source: GgufHeader, options: LoadOptions) -> None:
    """See that llama.cpp has the memory to make another model of one.

    Args:
        source: header of that.
        options: say which devices are used.

    Raises:
        LocalspecError: it has not.
    """
    largest = max((prod(each.shape) for each in source.tensors), default=0)
    _require(_WORKING_BYTES * largest, options)


def _require(needed_bytes: int, options: LoadOptions) -> None:
    machine = free_memory(options)
    if machine is None:
        return
    if needed_bytes > machine.usable_bytes:
        raise LocalspecError(
            f"it needs {size_text(needed_bytes)} of memory, and {size_text(machine.usable_bytes)} are free: end other programs"
        )
