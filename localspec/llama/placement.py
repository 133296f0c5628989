"""Where a model's layers go, in llama.cpp's words."""

import ctypes
from typing import Any

from localspec.llama.backend import library_function
from localspec.llama.devices import placed_on
from localspec.llama.native import native
from localspec.options import SPLITS, LoadOptions

_ALL_LAYERS = -1
_EXPERTS = rb"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
"""The tensors of experts. Source: `LLM_FFN_EXPS_REGEX` of llama.cpp's `common.h`."""


class _Override(ctypes.Structure):
    """`llama_model_tensor_buft_override`; one without a pattern ends an array."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buft", ctypes.c_void_p))


def place(params: "native.llama_model_params", options: LoadOptions) -> tuple[Any, ...]:
    """Set where layers go.

    The devices are always named, so that what is planned and what llama.cpp does is the same. Where nothing is offloaded
    there are none, or else llama.cpp would copy weights to a GPU for the passes of a prompt.

    Args:
        params: is changed.
        options: say which devices there are to be, and how they share the model.

    Returns:
        What `params` points to: it has to live until the model is loaded.

    Raises:
        UsageError: a name is not a device, or so many devices cannot share a model that way.
    """
    gpus = placed_on(options)
    handles = (ctypes.c_void_p * (len(gpus) + 1))(*(each.handle for each in gpus), None)
    params.devices = _address(handles)
    if not gpus:
        params.n_gpu_layers = 0
        return (handles,)
    params.n_gpu_layers = _ALL_LAYERS if options.gpu_layers is None else options.gpu_layers
    params.split_mode = SPLITS[options.split]
    # llama.cpp copies as many as it could have devices, however many there are. By itself it would share out by
    # what is free, which of another machine's RAM is all of it.
    free = [each.free_bytes for each in gpus if options.split == "layers"]
    shares = (ctypes.c_float * native.llama_max_devices())(*(options.shares or free))
    pointer: Any = ctypes.cast(shares, ctypes.POINTER(ctypes.c_float))
    params.tensor_split = pointer
    if not options.cpu_moe:
        return handles, shares
    cpu = library_function("ggml_backend_cpu_buffer_type", ctypes.c_void_p)
    overrides = (_Override * 2)(_Override(_EXPERTS, cpu()), _Override(None, None))
    params.tensor_buft_overrides = _address(overrides)
    return handles, shares, overrides


def _address(array: "ctypes.Array[Any]") -> Any:
    return ctypes.cast(array, ctypes.c_void_p)
