"""LlamaModel: a GGUF file loaded by llama.cpp."""

import ctypes
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.errors import ModelLoadError
from localspec.llama.allocated import allocated
from localspec.llama.backend import clear_log, initialise, last_complaint
from localspec.llama.native import native
from localspec.llama.placement import place
from localspec.llama.vocabulary import Vocabulary
from localspec.options import LOAD_MODES, LoadOptions


def _malloc_trim() -> Callable[[int], int] | None:
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):  # not GNU's library, or not even POSIX
        return None
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    found: Callable[[int], int] = trim
    return found


_TRIM = _malloc_trim()


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

    Attributes:
        on_gpu: whether layers are offloaded.
        lora: likewise.
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
    ) -> None:
        initialise()
        clear_log()
        self.path = path
        self.lora = lora
        self.options = options
        params = native.llama_model_default_params()
        pointed_to = place(params, options)
        self.on_gpu = params.n_gpu_layers != 0
        params.use_extra_bufts = options.repack
        params.load_mode = LOAD_MODES[options.loading(on_gpu=self.on_gpu)]
        params.load_mtp = mtp

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
        self.vocabulary = Vocabulary(vocabulary)
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
    def chat_template(self) -> str | None:
        """The template in the file, as jinja2 source; None when it has none."""
        raw = native.llama_model_chat_template(self.handle, None)
        return None if raw is None else raw.decode("utf-8", errors="replace")

    @property
    def size_bytes(self) -> int:
        """Bytes of all tensors."""
        return int(native.llama_model_size(self.handle))

    @property
    def description(self) -> str:
        """llama.cpp's own one-line description: architecture, size, quantisation."""
        buffer = ctypes.create_string_buffer(128)
        native.llama_model_desc(self.handle, buffer, len(buffer))
        return buffer.value.decode(errors="replace")

    def adopt(self, context: Closable) -> None:
        """Remember a context that has to be closed before the model."""
        self._contexts.add(context)

    def close(self) -> None:
        """Free the weights, and every context that still uses them."""
        for context in list(self._contexts):
            context.close()
        self._handle = None
        self._free()


def _why_not_loaded(path: Path) -> str:
    detail = last_complaint() or "no reason given"
    if "LLAMA_SPLIT_MODE_TENSOR not implemented" in detail:
        _, _, architecture = detail.rpartition("architecture ")
        return f"llama.cpp cannot split a {architecture} model such as {path} by tensors: use --split layers"
    return f"llama.cpp cannot load {path}: {detail}"
