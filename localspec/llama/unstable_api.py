"""llama.cpp's staging interface: what a target computes of each token on the way, which heads draft from.

It is C++ and not promised to stay, so each function is looked up by its mangled name where it is needed.
Source: `src/llama-ext.h` of the llama.cpp that llama-cpp-python 0.3.36 carries.
"""

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.errors import ModelLoadError
from localspec.llama.backend import library_function

Rows = NDArray[np.float32]
"""Rows of floats, one for each token of a pass, in its order."""

_CONTEXT, _FLOATS, _BOOL = ctypes.c_void_p, ctypes.POINTER(ctypes.c_float), ctypes.c_bool
_LAYER = ctypes.c_uint32
# By name: what the Itanium ABI makes of the parameters, the result, the parameters.
_FUNCTIONS: dict[str, tuple[str, Any, tuple[Any, ...]]] = {
    "llama_set_embeddings_nextn": ("P13llama_contextbb", None, (_CONTEXT, _BOOL, _BOOL)),
    "llama_get_embeddings_nextn": ("P13llama_context", _FLOATS, (_CONTEXT,)),
    "llama_set_embeddings_layer_inp": ("P13llama_contextjb", None, (_CONTEXT, _LAYER, _BOOL)),
    "llama_get_embeddings_layer_inp": ("P13llama_contextj", _FLOATS, (_CONTEXT, _LAYER)),
    "llama_set_nextn_layer_offset": ("P13llama_contexti", None, (_CONTEXT, ctypes.c_int32)),
}


def keep_hidden_rows(context: int, *, keep: bool = True, of_all: bool = True) -> None:
    """Have every pass of a context keep hidden rows: of each of its tokens, or of those alone whose logits are wanted."""
    _call("llama_set_embeddings_nextn", context, keep, not of_all)


def hidden_rows(context: int, tokens: int, width: int) -> Rows:
    """Return a copy of the hidden rows of the last pass, shape (tokens, width)."""
    return _copied(_call("llama_get_embeddings_nextn", context), tokens, width)


def keep_layer_inputs(context: int, layer: int, *, keep: bool = True) -> None:
    """Have every pass keep what enters a layer. llama.cpp ends the process where the architecture has no such hook."""
    _call("llama_set_embeddings_layer_inp", context, layer, keep)


def layer_inputs(context: int, layer: int, tokens: int, width: int) -> Rows:
    """Return a copy of what entered a layer in the last pass, shape (tokens, width)."""
    return _copied(_call("llama_get_embeddings_layer_inp", context, layer), tokens, width)


def use_mtp_layer(context: int, number: int) -> None:
    """Have every pass of a context of MTP layers run one of them; llama.cpp ends the process where there are fewer."""
    _call("llama_set_nextn_layer_offset", context, number)


def _call(name: str, *arguments: Any) -> Any:
    mangled, result, kinds = _FUNCTIONS[name]
    for symbol in (name, f"_Z{len(name)}{name}{mangled}"):
        try:
            function = library_function(symbol, result, *kinds)
        except AttributeError:
            continue
        return function(*arguments)
    raise ModelLoadError(
        f"this build of llama.cpp has no {name}: use --draft lookup, or the version that localspec names"
    )


def _copied(address: Any, tokens: int, width: int) -> Rows:
    assert address, "the rows were asked for"  # noqa: S101
    rows: Rows = np.ctypeslib.as_array(address, shape=(tokens, width)).copy()
    return rows
