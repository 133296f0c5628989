"""Keeps llama.cpp off Intel's AMX tiles, where a common compiler makes its code crash.

GCC as most distributions ship it (its bug 114098) takes `ldtilecfg` to read 8 of its 64 bytes, so that the
rest of the tile configuration is never written: the first pass over several tokens ends the process with SIGSEGV. The
compiler cannot be read off the library, so tiles are never used; llama.cpp takes its AVX-512 kernels instead.
"""

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# The least that the kernel takes for an alternate signal stack. It holds no frame with 8 KiB of tiles in it, so that
# the kernel refuses tiles to a process with such a stack, which llama.cpp asks for once and remembers.
_TOO_SMALL = 2048


class _SignalStack(ctypes.Structure):
    _fields_ = (("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


def avoid_amx(library: Callable[..., Any]) -> None:
    """Have llama.cpp decide now, for the life of this process, that there are no tiles.

    Does nothing where the library was built without them.

    Args:
        library: returns a function of the loaded library, by name, type of its result and types of its arguments.
    """
    try:
        if not library("ggml_cpu_has_amx_int8", ctypes.c_int)():
            return
        by_name = library("ggml_backend_reg_by_name", ctypes.c_void_p, ctypes.c_char_p)
        device_of = library("ggml_backend_reg_dev_get", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)  # fmt: skip
        address = library("ggml_backend_reg_get_proc_address", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)  # fmt: skip
    except AttributeError:  # a build whose parts are loaded by their kind of processor
        return
    cpu = by_name(b"CPU")
    buffer_types = cpu and address(cpu, b"ggml_backend_dev_get_extra_bufts")
    if not buffer_types:
        return
    decide = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(buffer_types)
    with _small_signal_stack(), _silent_stderr():  # it says on stderr that AMX is not ready
        decide(device_of(cpu, 0))


@contextmanager
def _small_signal_stack() -> Iterator[None]:
    libc = ctypes.CDLL(None)
    memory = ctypes.create_string_buffer(_TOO_SMALL)
    small, before = _SignalStack(ctypes.addressof(memory), 0, _TOO_SMALL), _SignalStack()
    if libc.sigaltstack(ctypes.byref(small), ctypes.byref(before)):
        yield  # a kernel that wants larger ones has no other way to be asked
        return
    try:
        yield
    finally:
        libc.sigaltstack(ctypes.byref(before), None)


@contextmanager
def _silent_stderr() -> Iterator[None]:
    saved = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)
