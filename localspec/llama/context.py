"""LlamaContext: a `LanguageModel` over one sequence of a llama.cpp context."""

import ctypes
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import llama_cpp.llama_cpp as native
import numpy as np
from numpy.typing import NDArray

from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.model import Logits
from localspec.errors import ContextOverflow, ModelLoadError, PassFailed
from localspec.llama.backend import clear_log, last_complaint
from localspec.llama.batch import Batch
from localspec.llama.devices import default_threads
from localspec.llama.model import LlamaModel
from localspec.llama.options import KV_TYPES, LoadOptions

_DEFAULT_N_CTX = 4096
_OK, _NO_SLOT, _ABORTED, _BAD_BATCH = 0, 1, 2, -1
_COMPARED = 256


class LlamaContext:
    """The tokens that a model has evaluated, and the function from tokens to logits.

    Keeps the longest common prefix of one request and the next, and evaluates the rest.

    Args:
        model: where the weights are.
        cancel: stops prefill and passes when set.
        options: how to make the context; the model's own by default.

    Attributes:
        n_ctx: most tokens that it holds.
        n_vocab: width of a row of logits.
        can_truncate: whether a part of its memory can be removed; of a recurrent state, none can.
        truncate_s: seconds that removing parts of the memory took in all.
        watch: called, while a request takes several chunks, with the tokens of it that are evaluated and all that
            had to be; None by default.

    Raises:
        ModelLoadError: llama.cpp cannot make such a context, mostly for want of memory.
    """

    def __init__(
        self,
        model: LlamaModel,
        cancel: CancelFlag | None = None,
        options: LoadOptions | None = None,
    ) -> None:
        options = model.options if options is None else options
        clear_log()
        self.model = model
        self._cancel = CancelFlag() if cancel is None else cancel
        handle = native.llama_init_from_model(model.handle, self._params(model, options))
        if not handle:
            detail = last_complaint() or "no reason given"
            raise ModelLoadError(
                f"llama.cpp cannot make a context for {model.path}: {detail}; try a smaller --ctx"
            )
        self._handle: int | None = handle
        self._free = weakref.finalize(self, native.llama_free, handle)
        self._memory = native.llama_get_memory(handle)
        model.adopt(self)
        # llama.cpp cuts the batch to a small context, and rounds the context up.
        self._n_batch = int(native.llama_n_batch(handle))
        self._max_rows = min(options.max_rows, self._n_batch)
        self._batch = Batch(self._n_batch)
        self._cached: list[int] = []
        self._views: dict[tuple[int, int], Logits] = {}
        self.watch: Callable[[int, int], None] | None = None
        self.truncate_s = 0.0
        self.n_ctx = min(self._wanted_n_ctx(model, options), int(native.llama_n_ctx_seq(handle)))
        self.n_vocab = model.vocabulary.n_vocab
        self.can_truncate = self._probe_truncation()

    @staticmethod
    def _wanted_n_ctx(model: LlamaModel, options: LoadOptions) -> int:
        return options.n_ctx or min(_DEFAULT_N_CTX, model.n_ctx_train)

    def _params(self, model: LlamaModel, options: LoadOptions) -> native.llama_context_params:
        threads = options.threads or default_threads()
        params: native.llama_context_params = native.llama_context_default_params()
        params.n_ctx = self._wanted_n_ctx(model, options)
        params.n_batch = params.n_ubatch = options.chunk(on_gpu=model.on_gpu)
        params.n_seq_max = 1
        params.n_outputs_max = options.max_rows
        params.n_threads = threads
        # Every pass of more than one token runs on these, so verification does.
        params.n_threads_batch = options.threads_batch or threads
        params.type_k = params.type_v = KV_TYPES[options.kv_type]
        attention = options.attention(on_gpu=model.on_gpu)
        params.flash_attn_type = -1 if attention is None else attention
        params.no_perf = True
        params.abort_callback = ctypes.cast(_STRLEN, native.ggml_abort_callback)
        params.abort_callback_data = ctypes.c_void_p(self._cancel.address)
        return params

    def _probe_truncation(self) -> bool:
        """Find out whether a part of the memory can be removed; recurrent states cannot."""
        self._decode([0, 0], rows=0)
        removed = bool(native.llama_memory_seq_rm(self._memory, 0, 1, -1))
        self._clear()
        return removed

    @property
    def handle(self) -> int:
        """llama.cpp's pointer.

        Raises:
            PassFailed: the context was closed.
        """
        return self._live()

    @property
    def cached(self) -> tuple[int, ...]:
        """The tokens that are evaluated and kept."""
        return tuple(self._cached)

    def assume(self, tokens: Sequence[int]) -> bool:
        """Take it that llama.cpp's memory holds these tokens, as after it was put back; forget all if it does not.

        Returns:
            Whether it holds as many.
        """
        holds = int(native.llama_memory_seq_pos_max(self._memory, 0)) + 1 == len(tokens)
        if holds:
            self._cached = list(tokens)
        else:
            self._clear()
        return holds

    @property
    def n_cached(self) -> int:
        """Number of tokens that are evaluated and kept."""
        return len(self._cached)

    def common_prefix(self, tokens: Sequence[int]) -> int:
        """Return how many of `tokens`, from the first on, are cached."""
        tokens = list(tokens)
        cached = self._cached
        shorter = min(len(cached), len(tokens))
        for start in range(0, shorter, _COMPARED):
            end = min(start + _COMPARED, shorter)
            if cached[start:end] != tokens[start:end]:
                return next(i for i in range(start, end) if cached[i] != tokens[i])
        return shorter

    def prefill(self, tokens: Sequence[int]) -> int:
        """Evaluate `tokens` in chunks of `n_batch`; see `LanguageModel`."""
        tokens = list(tokens)
        keep = self.common_prefix(tokens)
        if keep == len(tokens):
            return 0
        self.truncate(keep)
        return self._evaluate(tokens, rows=0)

    def logits(self, tokens: Sequence[int], rows: int) -> Logits:
        """Return the logits after the last `rows` tokens; see `LanguageModel`.

        Raises:
            Cancelled: the flag was set.
            ContextOverflow: `tokens` are more than `n_ctx`.
            PassFailed: llama.cpp reports a failure.
        """
        if not 1 <= rows <= self._max_rows:
            raise PassFailed(
                f"a pass asks for {rows} rows: this context gives 1 to {self._max_rows}"
            )
        tokens = list(tokens)
        self.truncate(min(self.common_prefix(tokens), len(tokens) - rows))
        self._evaluate(tokens, rows)
        address = ctypes.cast(native.llama_get_logits(self._live()), ctypes.c_void_p).value
        if address is None:
            raise PassFailed(
                "llama.cpp returned no logits: this is a fault of localspec, report it"
            )
        return self._view(address, rows)

    def truncate(self, n_past: int) -> None:
        """Forget all but the first `n_past` tokens; all of them where no part can be removed."""
        if n_past >= len(self._cached):
            return
        self._live()
        start = time.perf_counter()
        if n_past > 0 and native.llama_memory_seq_rm(self._memory, 0, n_past, -1):
            del self._cached[n_past:]
        else:
            self._clear()
        self.truncate_s += time.perf_counter() - start

    def close(self) -> None:
        """Free the context; closing twice is harmless."""
        self._handle = None
        self._views.clear()
        self._free()

    def _live(self) -> int:
        if self._handle is None:
            raise PassFailed(f"the context of {self.model.path} was closed: load the model again")
        return self._handle

    def _clear(self) -> None:
        native.llama_memory_clear(self._memory, False)
        self._cached.clear()

    def _view(self, address: int, rows: int) -> Logits:
        """Return the rows at an address as an array that shares their memory."""
        view = self._views.get((address, rows))
        if view is None:
            size = ctypes.c_float * (rows * self.n_vocab)
            flat: NDArray[np.float32] = np.ctypeslib.as_array(size.from_address(address))
            view = self._views[address, rows] = flat.reshape(rows, self.n_vocab)
        return view

    def _evaluate(self, tokens: list[int], rows: int) -> int:
        """Evaluate what of `tokens` is not cached, in chunks; return how many that were.

        All rows come from the last chunk.
        """
        todo = tokens[len(self._cached) :]
        start = 0
        while (left := len(todo) - start) > self._n_batch:
            chunk = min(self._n_batch, left - rows)
            self._decode(todo[start : start + chunk], rows=0)
            start += chunk
            if self.watch is not None:
                self.watch(start, len(todo))
        self._decode(todo[start:], rows)
        return len(todo)

    def _decode(self, tokens: list[int], rows: int) -> None:
        """Evaluate `tokens` after what is cached, in one native call."""
        handle = self._live()
        if self._cancel.is_set:
            raise Cancelled
        n_past = len(self._cached)
        if n_past + len(tokens) > self.n_ctx:
            raise ContextOverflow(
                f"{n_past + len(tokens)} tokens do not fit into a context of {self.n_ctx}: "
                "shorten the prompt or raise --ctx"
            )
        code = native.llama_decode(handle, self._batch.fill(tokens, n_past, rows))
        if code == _OK:
            self._cached += tokens
            return
        self._resync(tokens)
        if code == _ABORTED:
            raise Cancelled
        raise PassFailed(_explain(code, len(tokens), n_past, self.n_ctx))

    def _resync(self, tokens: list[int]) -> None:
        """After a failure, count as cached what llama.cpp has in fact kept."""
        kept = native.llama_memory_seq_pos_max(self._memory, 0) + 1
        self._cached = (self._cached + tokens)[:kept]


def _explain(code: int, n_tokens: int, n_past: int, n_ctx: int) -> str:
    where = f"{n_tokens} tokens at depth {n_past}"
    if code == _NO_SLOT:
        return f"no room in the KV cache for {where} (context {n_ctx}): raise --ctx"
    if code == _BAD_BATCH:
        return f"llama.cpp refused a pass of {where}: this is a fault of localspec, report it"
    detail = last_complaint() or f"code {code}"
    return f"llama.cpp failed in a pass of {where} ({detail}): try a smaller --ctx or --gpu-layers"


def _strlen() -> Any:
    # llama.cpp asks its abort callback once per graph node, on every pass. Entering Python that
    # often would take the GIL hundreds of times a pass, so the callback is libc's own strlen over the flag's two bytes:
    # 0 while the flag is clear, 1 once it is set. No Python runs, and no lock is taken.
    library = ctypes.cdll.msvcrt if sys.platform == "win32" else ctypes.CDLL(None)
    return library.strlen


_STRLEN = _strlen()
