"""Devices that this build of llama.cpp can compute on."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from localspec.errors import UsageError
from localspec.llama.backend import initialise, library_function
from localspec.llama.native import native

_CPU = 0  # GGML_BACKEND_DEVICE_TYPE_CPU
_ACCEL = 3  # BLAS and the like: used beside the CPU, never a place for layers


@dataclass(frozen=True, slots=True)
class Device:
    """One device, under the name that `--device` takes.

    Args:
        name: such as CUDA0, Metal or CPU.
        description: the hardware's own name.
        free_bytes: free memory as the backend reports it now.
        total_bytes: all of its memory.
        is_gpu: whether layers can be offloaded to it.
    """

    name: str
    description: str
    free_bytes: int
    total_bytes: int
    is_gpu: bool
    handle: int


def devices() -> list[Device]:
    """Return every device of this build, GPUs as well as the CPU."""
    initialise()
    count = library_function("ggml_backend_dev_count", ctypes.c_size_t)
    get = library_function("ggml_backend_dev_get", ctypes.c_void_p, ctypes.c_size_t)
    return [_describe(get(index)) for index in range(count())]


def _describe(handle: int) -> Device:
    pointer = ctypes.c_void_p
    size = ctypes.POINTER(ctypes.c_size_t)
    name = library_function("ggml_backend_dev_name", ctypes.c_char_p, pointer)
    description = library_function("ggml_backend_dev_description", ctypes.c_char_p, pointer)
    kind = library_function("ggml_backend_dev_type", ctypes.c_int, pointer)
    memory = library_function("ggml_backend_dev_memory", None, pointer, size, size)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    memory(handle, ctypes.byref(free), ctypes.byref(total))
    return Device(
        name=name(handle).decode(),
        description=description(handle).decode(errors="replace"),
        free_bytes=free.value,
        total_bytes=total.value,
        is_gpu=kind(handle) not in {_CPU, _ACCEL},
        handle=handle,
    )


def supports_offload() -> bool:
    """Return whether this build has a GPU backend with a device."""
    initialise()
    return bool(native.llama_supports_gpu_offload()) and any(d.is_gpu for d in devices())


def select(names: Sequence[str]) -> ctypes.Array[ctypes.c_void_p] | None:
    """Return the devices of these names as llama.cpp takes them; None leaves the choice to it.

    Raises:
        UsageError: a name is not a device of this build.
    """
    if not names:
        return None
    known = {device.name.lower(): device for device in devices()}
    chosen: list[int | None] = []
    for name in names:
        device = known.get(name.lower())
        if device is None:
            listed = ", ".join(device.name for device in known.values())
            raise UsageError(
                f"device {name!r} is not in this build of llama.cpp: choose one of {listed}"
            )
        if device.is_gpu:
            chosen.append(device.handle)
    # An empty list, ended by NULL, keeps everything on the CPU.
    return (ctypes.c_void_p * (len(chosen) + 1))(*chosen, None)
