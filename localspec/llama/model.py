"""LlamaModel: a GGUF file loaded by llama.cpp."""

import ctypes
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.errors import ModelLoadError
from localspec.llama.backend import (
    clear_log,
    initialise,
    last_complaint,
    library_function,
    log_of_this_thread,
)
from localspec.llama.buffer_log import allocated
from localspec.llama.devices import REMOTE, placed_on
from localspec.llama.native import native
from localspec.llama.vocabulary import Vocabulary
from localspec.options import LOAD_MODES, SPLITS, LoadOptions
from localspec.storage.locks import hold

_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of GNU's library alone

_LOOK_S = 0.02
_OFTEN_S = 0.0001
"""After so long a thread gives way to another: llama.cpp calls back for every tensor and every line of its log."""


def give_back_memory() -> None:
    """Give what was freed back to the system, where the C library does not by itself.

    GNU's takes blocks below a bound from the system one by one, and raises the bound, up to 32 MB, with every such block
    that is freed; from then on caches and buffers of a model come from the heap, which stays as large as it ever was.
    """
    if _TRIM is not None:
        _TRIM(0)


class Closable(Protocol):
    """What a model asks of its contexts."""

    def close(self) -> None:
        """Free what is native; closing twice is harmless."""


class LlamaModel:
    """Weights and vocabulary of one file; contexts are made from it.

    Closing it closes its contexts first, so that the order in which a caller lets go of
    things never matters.

    Args:
        path: a GGUF whose header was already found sound.
        options: how to load it.
        cancel: stops the loading when set.
        on_progress: called with the share of the file that is loaded, 0 to 1.
        lora: file of an adapter that every context has; None without one.
        mtp: whether its layers for multi-token prediction are loaded, too.
        is_heads: whether the file has heads of another model, not a model.
        corrections: what the file's header should say instead, by keys.
        normal: which ids its header calls normal; None where nobody looked.
        bare: load the vocabulary alone, without weights.
        plain: map the weights as they lie in the file, though the options have them repacked.

    Attributes:
        on_gpu: whether layers are offloaded.
        lora: the adapter's file.
        adapter: llama.cpp's pointer to it, valid as long as the model is; None without one.
        allocated: what its weights took, by places.

    Raises:
        Cancelled: `cancel` was set.
        ModelLoadError: llama.cpp refuses a file, or cannot decode with such a model.
    """

    def __init__(
        self,
        path: Path,
        options: LoadOptions,
        cancel: CancelFlag | None = None,
        on_progress: Callable[[float], None] | None = None,
        lora: Path | None = None,
        *,
        mtp: bool = False,
        is_heads: bool = False,
        corrections: Mapping[str, int] | None = None,
        normal: NDArray[np.bool_] | None = None,
        bare: bool = False,
        plain: bool = False,
    ) -> None:
        initialise()
        clear_log()
        self.path = path
        self.lora = lora
        self.options = options
        params = native.llama_model_default_params()
        pointed_to = _place(params, options)
        self.on_gpu = params.n_gpu_layers != 0
        params.use_extra_bufts = options.repack and not plain
        mode = "mmap" if plain else options.loading(on_gpu=self.on_gpu)
        params.load_mode = LOAD_MODES[mode]
        params.load_mtp = mtp
        params.vocab_only = bare
        values = (native.llama_model_kv_override * (len(corrections or ()) + 1))()
        for each, (key, number) in zip(values, (corrections or {}).items(), strict=False):
            each.tag, each.key = native.LLAMA_KV_OVERRIDE_TYPE_INT, key.encode()
            each.value.val_i64 = number
        params.kv_overrides = values

        def progress(share: float, _user_data: object) -> bool:
            if on_progress is not None:
                on_progress(share)
            return cancel is None or not cancel.is_set

        params.progress_callback = native.llama_progress_callback(progress)
        handle = native.llama_model_load_from_file(os.fsencode(path), params)
        del pointed_to  # not before the file is loaded
        self.allocated = allocated()
        if not handle:
            if cancel is not None and cancel.is_set:
                raise Cancelled
            raise ModelLoadError(_why_not_loaded(path))
        self._handle: int | None = handle
        self._free = weakref.finalize(self, native.llama_model_free, handle)
        held = hold(path)  # `rm` asks before it removes what is loaded
        self._let_go = None if held is None else weakref.finalize(self, os.close, held)
        self._contexts: weakref.WeakSet[Closable] = weakref.WeakSet()
        encodes = native.llama_model_has_encoder(handle) and not is_heads
        if encodes or not native.llama_model_has_decoder(handle):
            self.close()
            raise ModelLoadError(
                f"{path} is not a decoder-only language model: choose a text generation model"
            )
        vocabulary = native.llama_model_get_vocab(handle)
        if native.llama_vocab_type(vocabulary) == native.LLAMA_VOCAB_TYPE_NONE:
            self.close()  # llama.cpp would end the process at the first text
            raise ModelLoadError(f"{path} has no tokenizer: give a GGUF of a language model")
        self.vocabulary = Vocabulary(vocabulary, normal, self.chat_template)
        self.adapter = None if lora is None else self._adapted(lora)

    def _adapted(self, lora: Path) -> Any:
        """Load an adapter, which llama.cpp frees with the model; contexts are made after it."""
        clear_log()
        adapter = native.llama_adapter_lora_init(self.handle, os.fsencode(lora))
        if not adapter:
            self.close()
            detail = last_complaint() or "no reason given"
            raise ModelLoadError(f"llama.cpp cannot load the adapter {lora}: {detail}")
        return adapter

    @property
    def handle(self) -> int:
        """llama.cpp's pointer.

        Raises:
            ModelLoadError: the model was closed.
        """
        if self._handle is None:
            raise ModelLoadError(f"{self.path} was closed: load it again")
        return self._handle

    @property
    def n_vocab(self) -> int:
        """Ids that it has logits for."""
        return self.vocabulary.n_vocab

    @property
    def n_ctx_train(self) -> int:
        """Tokens of context that the model was trained for."""
        return int(native.llama_model_n_ctx_train(self.handle))

    @property
    def has_windows(self) -> bool:
        """Whether layers look at the last tokens alone."""
        return int(native.llama_model_n_swa(self.handle)) > 0

    @property
    def chat_template(self) -> str | None:
        """The template in the file, as jinja2 source; None when it has none.

        llama.cpp's own function has the name of one instead that the vocabulary suggests.
        """
        return self.metadata("tokenizer.chat_template")

    @property
    def tool_template(self) -> str | None:
        """The template in the file for conversations with tools; None when the other is for all."""
        return self.metadata("tokenizer.chat_template.tool_use")

    def metadata(self, key: str) -> str | None:
        """Return the value of a key of the file, as text; None without one."""
        length = native.llama_model_meta_val_str(self.handle, key.encode(), None, 0)
        if length < 0:
            return None
        room = ctypes.create_string_buffer(length + 1)
        native.llama_model_meta_val_str(self.handle, key.encode(), room, len(room))
        return room.value.decode(errors="replace")

    def adopt(self, context: Closable) -> None:
        """Remember a context that has to be closed before the model."""
        self._contexts.add(context)

    def close(self) -> None:
        """Free the weights, and every context that still uses them."""
        for context in list(self._contexts):
            context.close()
        self._handle = None
        self._free()
        if self._let_go is not None:
            self._let_go()


class ModelThread:
    """A model that is loaded in a thread, while what makes a runtime of it is imported; `model` waits for it.

    Args:
        load: loads it, and calls back with the share that is loaded.
    """

    def __init__(self, load: Callable[[Callable[[float], None]], LlamaModel]) -> None:
        initialise()  # which no two threads do at once
        self._share = 0.0
        threads = ThreadPoolExecutor(1, "localspec-weights", log_of_this_thread())
        self._model = threads.submit(load, self._at)
        threads.shutdown(wait=False)

    def _at(self, share: float) -> None:
        self._share = share

    def model(self, report: Callable[[float], None]) -> LlamaModel:
        """Return the model once it is loaded, or raise what loading it raised.

        Args:
            report: called with the share that is loaded, in the thread that waits.
        """
        while not self._model.done():
            report(self._share)
            wait([self._model], _LOOK_S)
        return self._model.result()


@contextmanager
def taking_turns() -> Iterator[None]:
    """Let other threads go on often, whatever this one does meanwhile."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(_OFTEN_S)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


def _why_not_loaded(path: Path) -> str:
    detail = last_complaint() or "no reason given"
    if "LLAMA_SPLIT_MODE_TENSOR not implemented" in detail:
        _, _, architecture = detail.rpartition("architecture ")
        return f"llama.cpp cannot split a {architecture} model such as {path} by tensors: use --split layers"
    return f"llama.cpp cannot load {path}: {detail}"


_ALL_LAYERS = -1
_EXPERTS = rb"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
"""The tensors of experts. Source: `LLM_FFN_EXPS_REGEX` of llama.cpp's `common.h`."""


class _Override(ctypes.Structure):
    """`llama_model_tensor_buft_override`; one without a pattern ends an array."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buft", ctypes.c_void_p))


def _place(params: "native.llama_model_params", options: LoadOptions) -> tuple[Any, ...]:
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
    shared = options.shares
    if not shared and options.split == "layers" and any(each.backend == REMOTE for each in gpus):
        # llama.cpp has its own idea of another machine's RAM.
        shared = tuple(each.free_bytes for each in gpus)
    # llama.cpp copies as many as it could have devices, however many there are.
    shares = (ctypes.c_float * native.llama_max_devices())(*shared)
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
