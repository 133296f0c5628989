"""Weights as they are packed in a file, made numbers by ggml's own functions."""

import ctypes
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from localspec.llama.backend import initialise, library_function

_F32 = 0
_TO_FLOAT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)

Unpack = Callable[[NDArray[np.uint8], NDArray[np.float32]], None]
"""Given packed rows, writes their elements to the second, both of them contiguous, shape (rows, elements)."""


class _Traits(ctypes.Structure):
    """ggml's `ggml_type_traits`, as far as it is asked for."""

    _fields_ = [
        ("type_name", ctypes.c_char_p),
        ("block_size", ctypes.c_int64),
        ("block_size_interleave", ctypes.c_int64),
        ("type_size", ctypes.c_size_t),
        ("is_quantized", ctypes.c_bool),
        ("to_float", ctypes.c_void_p),
    ]


def unpacking(type_id: int) -> Unpack:
    """Return what makes rows of a ggml type numbers."""
    if type_id == _F32:
        return _copy
    initialise()
    traits_of = library_function("ggml_get_type_traits", ctypes.POINTER(_Traits), ctypes.c_int)
    address = traits_of(type_id).contents.to_float
    assert address, "every type that weights come in has one"  # noqa: S101
    to_float = _TO_FLOAT(address)

    def unpack(packed: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
        to_float(packed.ctypes.data, out.ctypes.data, out.size)

    return unpack


def _copy(packed: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
    out[:] = packed.view(np.float32)
