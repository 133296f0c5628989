"""The other end of RPC: this machine's devices, served to one program at a time by llama.cpp's own server."""

import ctypes
import os
import threading
from collections.abc import Sequence

from localspec.api import LocalspecError, UsageError
from localspec.llama.backend import last_complaint
from localspec.llama.devices import Device, devices, named_devices
from localspec.plugins.workers.handshake import PATIENCE_S, require_worker
from localspec.plugins.workers.rpc import rpc_function


def served_devices(names: Sequence[str]) -> list[Device]:
    """Return the devices of these names; without any all GPUs, or the CPU where there is none.

    Raises:
        UsageError: a name is not a device of this build.
    """
    there = devices()
    chosen = named_devices(names, there) or [device for device in there if device.is_gpu]
    return chosen or named_devices(["cpu"], there)


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


def _drop_stdout() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
