"""The other end of RPC: this machine's devices, served to one program at a time by llama.cpp's own server."""

import ctypes
import os
import threading
from collections.abc import Sequence
from typing import Any

from localspec.errors import LocalspecError, UsageError
from localspec.llama.backend import last_complaint
from localspec.llama.devices import Device, devices
from localspec.llama.handshake import PATIENCE_S, require_worker
from localspec.llama.rpc import rpc_function
from localspec.resources import free_ram_bytes


def served_devices(names: Sequence[str]) -> list[Device]:
    """Return the devices of these names; without any all GPUs, or the CPU where there is none.

    Raises:
        UsageError: a name is not a device of this build.
    """
    there = devices()
    known = {device.name.lower(): device for device in there}
    for name in names:
        if name.lower() not in known:
            listed = ", ".join(device.name for device in there)
            raise UsageError(
                f"device {name!r} is not in this build of llama.cpp: choose one of {listed}"
            )
    if names:
        return [known[name] for name in dict.fromkeys(map(str.lower, names))]
    return [device for device in there if device.is_gpu] or [known["cpu"]]


def start_server(address: str, served: Sequence[Device], threads: int) -> threading.Thread:
    """Serve devices until this process ends; return once they are there.

    llama.cpp prints what happens on stdout, which goes nowhere from here on.

    Args:
        address: an IPv4 address and a port.
        served: at least one.
        threads: of the CPU, where it is among them.

    Returns:
        The thread that serves; it ends only by an error.

    Raises:
        UsageError: this build has no RPC.
        LocalspecError: it cannot be served there.
    """
    size, pointer = ctypes.c_size_t, ctypes.c_void_p
    start = rpc_function(
        "ggml_backend_rpc_start_server", None, ctypes.c_char_p, ctypes.c_char_p, size, size, pointer
    )
    for device in served:
        if device.kind == "CPU":
            _tell_what_is_available(device)
    handles = (pointer * len(served))(*(device.handle for device in served))
    _drop_stdout()
    thread = threading.Thread(
        target=lambda: start(
            address.encode(), None, threads, len(served), ctypes.cast(handles, pointer)
        ),
        daemon=True,
        name="localspec-rpc-server",
    )
    thread.start()
    for _ in range(int(PATIENCE_S / _LOOK_S)):
        thread.join(_LOOK_S)
        if not thread.is_alive():
            break
        try:
            require_worker(address)
        except UsageError:
            continue
        return thread
    reason = last_complaint() or "llama.cpp does not say why"
    raise LocalspecError(f"no worker can be at {address}: {reason}")


_LOOK_S = 0.05


class _Interface(ctypes.Structure):
    """The beginning of `ggml_backend_device`: functions of a device."""

    _fields_ = (
        ("get_name", ctypes.c_void_p),
        ("get_description", ctypes.c_void_p),
        ("get_memory", ctypes.c_void_p),
    )


_GET_NAME = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)
_SIZE = ctypes.POINTER(ctypes.c_size_t)
_GET_MEMORY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, _SIZE, _SIZE)
_in_use: list[object] = []
"""Functions that llama.cpp calls; ctypes drops one that nothing refers to."""


def _tell_what_is_available(cpu: Device) -> None:
    """Have llama.cpp say what of the RAM is available where a program asks for the CPU's free memory.

    By itself it says that all of it is free, and whoever asked would send more than there is room for.

    Raises:
        LocalspecError: in this build, functions of devices are not where they are in the pinned one.
    """
    functions = _Interface.from_address(cpu.handle)
    theirs = _GET_MEMORY(functions.get_memory)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    if _GET_NAME(functions.get_name)(cpu.handle) == cpu.name.encode():
        theirs(cpu.handle, ctypes.pointer(free), ctypes.pointer(total))
    if total.value != cpu.total_bytes:
        raise LocalspecError(
            "this build of llama.cpp cannot be told what is available of the RAM, since its devices are not as in the pinned one:"
            " install the version that `localspec doctor` names, or serve a GPU with --device"
        )

    def get_memory(device: int, free: Any, total: Any) -> None:
        theirs(device, free, total)
        available = free_ram_bytes()
        if available is not None:
            free[0] = min(free[0], available)

    ours = _GET_MEMORY(get_memory)
    _in_use.append(ours)
    functions.get_memory = ctypes.cast(ours, ctypes.c_void_p).value


def _drop_stdout() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
