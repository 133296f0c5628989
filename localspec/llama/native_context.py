"""NativeContext: llama.cpp's context itself, made and freed; passes, what they can end in, and where their rows are.

It knows which sequences its memory holds, but not what tokens are in them.
"""

import ctypes
import mmap
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.model import Logits
from localspec.errors import ModelLoadError, PassFailed
from localspec.llama.backend import clear_log, last_complaint
from localspec.llama.batch import Batch, Part
from localspec.llama.buffer_log import allocated
from localspec.llama.encoder import Encoder, MediaChunk
from localspec.llama.model import LlamaModel
from localspec.llama.native import native
from localspec.llama.spare_cores import MOMENTS, SpareCores
from localspec.options import KV_TYPES, QUANTISED_KV_TYPES, LoadOptions
from localspec.resources import default_threads, free_ram_bytes

_PADDING = 256  # llama.cpp's, of the cells of a sequence
_SHARE_OF_FREE = 4
"""Of the free memory, a copy may take this part."""
_OK, _NO_SLOT, _ABORTED, _BAD_BATCH = 0, 1, 2, -1


@dataclass(slots=True)
class ReadTime:
    """How many tokens were evaluated, and in how many seconds."""

    tokens: int = 0
    seconds: float = 0.0


class NativeContext:
    """A context of one or several sequences, each with cells of its own.

    One buffer for all sequences would share cells, and cost more in every pass: each row looks at the
    cells of all of them, which takes a tenth more time at 16 sequences and twice the time at 64.

    Args:
        model: where the weights are.
        cancel: stops passes when set.
        options: how to make it; `n_ctx` and `max_rows` are those of one sequence.
        n_sequences: how many.
        max_rows: most rows of logits of a pass.
        branches: most branches of a pass of a lone sequence, which then are sequences beside it over the same cells.
        pass_s: seconds that a pass of a prompt may take on a device that cannot stop it; None leaves it as wide as may be.
        encoder: of pictures and sounds that its sequences evaluate; without one, each of their tokens is a placeholder.
        beside: a context that it reads for: they count what they read together, and give way together.

    Attributes:
        encoder: the same.
        n_batch: most tokens of a pass.
        n_ctx: most tokens of a sequence.
        n_vocab: width of a row of logits.
        most_branches: most branches of a pass; none where a state is recurrent, or there are several sequences.
        can_truncate: whether a part of a sequence can be removed; of a recurrent state, none can.
        n_snapshots: how many tokens of a sequence's last pass can be removed where no other part can; once, before its
            next pass. llama.cpp does not check that they are of that pass.
        most_removed: how many tokens of a pass can be removed again; 0 where a recurrent state has no snapshots.
        on_pass: called after every pass with its parts, while what it computed is still there.
        copies_wait: whether something is still to be copied, which the next pass does first. Until then memory does
            not hold what `kept` says.
        streams: how many caches of attention side by side a state is of, by llama.cpp's count.
        spare: how many threads passes have beside other programs.
        reads: of prompts, what was evaluated so far in passes without rows.
        allocated: what caches and scratch took, by places.

    Raises:
        ModelLoadError: llama.cpp cannot make such a context, mostly for want of memory.
    """

    _embedding_width = 0
    """Floats that go in beside each token."""
    _moments = MOMENTS
    """Looks before a first pass gives way to other programs."""
    _first_row = 0
    """Place of the first row that was asked for among those of the last pass."""
    pass_width = 0
    """Tokens that every pass for rows has at least, with meaningless ones behind its own; see `fix_width`."""

    def __init__(
        self,
        model: LlamaModel,
        cancel: CancelFlag,
        options: LoadOptions,
        max_rows: int,
        n_sequences: int = 1,
        branches: int = 0,
        pass_s: float | None = None,
        encoder: Encoder | None = None,
        beside: "NativeContext | None" = None,
    ) -> None:
        clear_log()
        self.model, self.encoder = model, encoder
        self._threads = options.threads or default_threads()
        # Every pass of more than one token runs on these, so verification does.
        self._threads_batch = options.threads_batch or self._threads
        most = max(self._threads, self._threads_batch)
        self.spare: SpareCores = (
            SpareCores(most, moments=self._moments) if beside is None else beside.spare
        )
        self._gives_way = not model.on_gpu
        self._cancel = cancel
        self._n_sequences = n_sequences
        self.most_branches = 0 if n_sequences > 1 or self._is_recurrent() else branches
        # How much of the lone sequence each branch has in common with it, as llama.cpp knows.
        self._followed = [0] * self.most_branches
        # llama.cpp wants room for a row of every sequence.
        rows = max(max_rows, n_sequences + self.most_branches)
        handle = native.llama_init_from_model(model.handle, self._params(options, rows))
        if not handle:
            detail = last_complaint() or "no reason given"
            # Blocks of 32 values have to divide the heads.
            other = " or --kv-type f16" if options.kv_type in QUANTISED_KV_TYPES else ""
            raise ModelLoadError(
                f"llama.cpp cannot make a context for {model.path}: {detail}; try a smaller --ctx{other}"
            )
        self._handle: int | None = handle
        self._free = weakref.finalize(self, native.llama_free, handle)
        model.adopt(self)
        self.allocated = allocated()
        self._adapt(model)
        # llama.cpp cuts the batch to a small context, and rounds the context up.
        self.n_batch = room = int(native.llama_n_batch(handle))
        if encoder is not None and encoder.most_at_once:
            self.n_batch = min(room, options.chunk(on_gpu=model.on_gpu))  # as without pictures
        self.max_rows = min(rows, self.n_batch)
        self._queued = None
        if model.on_gpu:
            from localspec.llama.pass_limit import queued_on  # noqa: PLC0415 - of no use on a CPU

            self._queued = queued_on(model.options, handle, self.n_batch, pass_s)
        numbers = n_sequences + self.most_branches
        self._batch = Batch(
            self.n_batch,
            numbers,
            width=self._embedding_width,
            placeholder=model.vocabulary.placeholder,
        )
        self._media = None if encoder is None else encoder.batch(room, numbers)
        self._views: dict[tuple[int, int], Logits] = {}
        # Recurrent sequences that have their own cells; and which of those are empty, whatever is in the cell.
        self._has_cells, self._cleared = False, set[int]()
        self.copies_wait = False
        self.streams = 1 if self.most_branches else n_sequences
        self.reads: ReadTime = ReadTime() if beside is None else beside.reads
        self.on_pass: Callable[[Sequence[Part]], None] | None = None
        wanted = wanted_n_ctx(model, options)
        self.n_ctx = min(wanted, int(native.llama_n_ctx_seq(handle)))
        self.n_vocab = model.n_vocab
        self.n_snapshots = int(native.llama_n_rs_seq(handle))
        self.can_truncate = self.n_snapshots == 0 and self._truncates()
        self.most_removed = self.n_ctx if self.can_truncate else self.n_snapshots
        self._has_cells = self.n_snapshots > 0 and n_sequences > 1
        if self._has_cells:
            self._take_cells(range(n_sequences))

    def _params(self, options: LoadOptions, rows: int) -> native.llama_context_params:
        model = self.model
        n_ctx = wanted_n_ctx(model, options)
        if self._n_sequences > 1:  # a share that is no multiple would be rounded down
            n_ctx = self._n_sequences * (-(-n_ctx // _PADDING) * _PADDING)
        params: native.llama_context_params = native.llama_context_default_params()
        params.n_ctx = n_ctx
        at_once = 0 if self.encoder is None else self.encoder.most_at_once
        params.n_batch = params.n_ubatch = max(options.chunk(on_gpu=model.on_gpu), at_once)
        params.n_seq_max = self._n_sequences + self.most_branches
        params.kv_unified = self.most_branches > 0
        params.n_outputs_max = rows
        # Of most architectures there are none.
        params.n_rs_seq = min(options.snapshots, max(0, n_ctx - 2))
        params.n_threads = self._threads
        params.n_threads_batch = self._threads_batch
        params.type_k = params.type_v = KV_TYPES[options.kv_type]
        attention = options.attention(on_gpu=model.on_gpu)
        params.flash_attn_type = -1 if attention is None else attention
        params.offload_kqv = options.kv_offload
        params.no_perf = True
        params.abort_callback = _ABORT_CALLBACK
        params.abort_callback_data = ctypes.c_void_p(self._cancel.address)
        return params

    def _take_cells(self, sequences: Sequence[int]) -> None:
        """Pin each of these recurrent sequences to the cell of its own number, with a token that means nothing in it.

        llama.cpp puts the state of a sequence into the first free cell. Where the cells of a pass are not in the order of its
        sequences it exchanges states, and leaves their snapshots behind. So no sequence is ever without its cell, but in the pass
        that begins it.
        """
        parts = [Part(sequence, [0], n_past=0, rows=0) for sequence in sequences]
        native.llama_set_abort_callback(self.handle, native.ggml_abort_callback(), None)
        code = native.llama_decode(self.handle, self._batch.fill(parts))
        flag = ctypes.c_void_p(self._cancel.address)
        native.llama_set_abort_callback(self.handle, _ABORT_CALLBACK, flag)
        if code != _OK:
            raise PassFailed(self._explain(code, parts))
        self._cleared.update(sequences)

    def _adapt(self, model: LlamaModel) -> None:
        """Let the passes have the model's adapter."""
        if model.adapter is None:
            return
        adapters = (native.llama_adapter_lora_p_ctypes * 1)(model.adapter)
        scales = (ctypes.c_float * 1)(1.0)
        if native.llama_set_adapters_lora(self.handle, adapters, 1, scales) != 0:
            self.close()
            raise ModelLoadError(f"llama.cpp cannot use the adapter {model.lora} for {model.path}")

    def _truncates(self) -> bool:
        """Find out whether a part of the memory can be removed; of recurrent states that is tried, by a pass."""
        if not self._is_recurrent():
            return True
        self.decode([Part(0, [0, 0], n_past=0, rows=0)])
        removed = self.remove(0, 1)
        self.clear(0)
        return removed

    def _is_recurrent(self) -> bool:
        handle = self.model.handle
        return bool(native.llama_model_is_recurrent(handle) or native.llama_model_is_hybrid(handle))

    @property
    def handle(self) -> int:
        """llama.cpp's pointer.

        Raises:
            PassFailed: the context was closed.
        """
        if self._handle is None:
            raise PassFailed(f"the context of {self.model.path} was closed: load the model again")
        return self._handle

    @property
    def gave_way(self) -> bool:
        """Whether a pass ever had fewer threads than it was to have, since other programs were busy."""
        return self.spare.gave_way

    @property
    def chunk(self) -> int:
        """Tokens of a prompt's next pass: `n_batch`, or fewer where it cannot be stopped and would take long."""
        return self.n_batch if self._queued is None else self._queued.tokens

    def _memory(self) -> Any:
        return native.llama_get_memory(self.handle)

    def fix_width(self, width: int) -> None:
        """Let every pass for rows have so many tokens at least, of one sequence: the others mean nothing, and are removed.

        A device that computes each width by kernels of its own gives a token the same bits wherever it stands in
        passes of one width; a CPU, in passes of two tokens and more.
        """
        self.n_ctx -= width - self.pass_width
        self.pass_width = width

    def _decode_padded(self, part: Part) -> int:
        """Evaluate a part with tokens behind it up to the fixed width, remove these, and return llama.cpp's code."""
        n_tokens = len(part.tokens)
        self._first_row = n_tokens - part.rows
        padding = [0] * (self.pass_width - n_tokens)
        padded = replace(part, tokens=[*part.tokens, *padding], rows=self.pass_width)
        code: int = native.llama_decode(self.handle, self._batch.fill([padded]))
        native.llama_memory_seq_rm(self._memory(), part.sequence, part.n_past + n_tokens, -1)
        return code

    def _decode(self, parts: Sequence[Part]) -> int:
        """Evaluate parts, with what is to be done around those that have branches, and return llama.cpp's code."""
        self._first_row = 0
        forked = parts[0] if parts and parts[0].branches else None
        if forked is not None:
            self._fork(forked)
        code: int = native.llama_decode(self.handle, self._batch.fill(parts))
        if forked is not None:
            self._join(forked)
        return code

    def decode(self, parts: Sequence[Part]) -> None:
        """Evaluate some tokens of some sequences in one native call.

        Args:
            parts: sequences ascending; `n_batch` tokens and `max_rows` rows at most.

        Raises:
            Cancelled: the flag was set; a part of it may be evaluated.
            PassFailed: llama.cpp failed; a part of it may be evaluated.
        """
        handle = self.handle
        if self._cancel.is_set:
            raise Cancelled
        if self._gives_way:
            most = self.spare.threads(time.monotonic())
            native.llama_set_n_threads(
                handle, min(self._threads, most), min(self._threads_batch, most)
            )
        start_s = time.monotonic()
        if self._cleared:
            self._empty_cells(parts)
        if self.pass_width and parts[0].rows and len(parts[0].tokens) <= self.pass_width:
            code = self._decode_padded(parts[0])
        else:
            code = self._decode(parts)
        self.spare.done(time.monotonic())
        self.copies_wait = self.copies_wait and code == _BAD_BATCH
        if code == _OK:
            if not any(part.rows for part in parts):
                n_tokens = sum(len(part.tokens) for part in parts)
                if self._queued is not None:
                    self._queued.done(n_tokens, start_s)
                self.reads.tokens += n_tokens
                self.reads.seconds += time.monotonic() - start_s
            if self.on_pass is not None:
                self.on_pass(parts)
            return
        self._fail(code, parts)

    def decode_chunk(self, part: Part, chunk: MediaChunk) -> None:
        """Evaluate a picture, a tile or a piece of sound; raises as `decode` does, and where it is too large for a pass.

        Args:
            part: its ids, without rows.
            chunk: what they stand for.
        """
        assert self._media is not None, "an encoder made the chunk"  # noqa: S101
        count, most = len(part.tokens), self.n_batch if chunk.causal else self._media.room
        if not chunk.causal and count > most:
            raise PassFailed(
                f"a picture of {count} tokens is evaluated in one pass, and this context has passes of {most}: a larger context is needed"
            )
        tokens, self._batch = self._batch, self._media
        native.llama_set_causal_attn(self.handle, chunk.causal)
        try:
            for at in range(0, count, most):
                self.decode([chunk.piece(part, at, at + most)])
        finally:
            self._batch = tokens
            native.llama_set_causal_attn(self.handle, True)

    def _fail(self, code: int, parts: Sequence[Part]) -> NoReturn:
        """Raise what a pass ended in."""
        if self._has_cells:
            without = [each.sequence for each in parts if not self.held(each.sequence)]
            if without:
                self._take_cells(without)
        if code == _ABORTED:
            raise Cancelled
        raise PassFailed(self._explain(code, parts))

    def _empty_cells(self, parts: Sequence[Part]) -> None:
        """Empty the cells of those sequences that a pass begins with."""
        for sequence in self._cleared & {part.sequence for part in parts}:
            self._cleared.remove(sequence)
            native.llama_memory_seq_rm(self._memory(), sequence, -1, -1)

    def _fork(self, part: Part) -> None:
        """Let every branch of a part have what comes before the part; llama.cpp only notes it at the cells."""
        memory, n_past = self._memory(), part.n_past
        for at in range(len(part.branches)):
            native.llama_memory_seq_cp(memory, part.sequence, at + 1, self._followed[at], n_past)
            self._followed[at] = n_past

    def _join(self, part: Part) -> None:
        """Leave of a pass what it would have left without branches."""
        memory = self._memory()
        for at in range(len(part.branches)):
            native.llama_memory_seq_rm(memory, at + 1, part.n_past, -1)

    def rows(self, count: int) -> Logits:
        """Return the rows of the last pass as an array that shares their memory."""
        address = ctypes.cast(native.llama_get_logits(self.handle), ctypes.c_void_p).value
        if address is None:
            raise PassFailed("llama.cpp returned no logits: this is a bug in localspec, report it")
        address += self._first_row * self.model.vocabulary.n_vocab * ctypes.sizeof(ctypes.c_float)
        view = self._views.get((address, count))
        if view is None:
            width = self.model.vocabulary.n_vocab
            size = ctypes.c_float * (count * width)
            flat: NDArray[np.float32] = np.ctypeslib.as_array(size.from_address(address))
            view = self._views[address, count] = flat.reshape(count, width)
        return view

    def held(self, sequence: int) -> int:
        """Return how many positions of a sequence llama.cpp's memory holds, up to the last that a token has."""
        if sequence in self._cleared:
            return 0
        return int(native.llama_memory_seq_pos_max(self._memory(), sequence)) + 1

    def remove(self, sequence: int, n_past: int) -> bool:
        """Remove all of a sequence from position `n_past` on; say whether that was possible."""
        for at, followed in enumerate(self._followed):
            if followed > n_past:
                native.llama_memory_seq_rm(self._memory(), at + 1, n_past, -1)
                self._followed[at] = n_past
        return bool(native.llama_memory_seq_rm(self._memory(), sequence, n_past, -1))

    def clear(self, sequence: int) -> None:
        """Remove all of a sequence."""
        if self._n_sequences == 1:
            native.llama_memory_clear(self._memory(), False)
            self._followed = [0] * self.most_branches
        elif self._has_cells:
            self._cleared.add(sequence)
        else:
            native.llama_memory_seq_rm(self._memory(), sequence, -1, -1)

    def copy(self, source: int, sequence: int) -> None:
        """Make a sequence hold what another one holds, instead of what it held.

        llama.cpp copies the whole buffer of a sequence, before the next pass.
        """
        native.llama_memory_seq_cp(self._memory(), source, sequence, -1, -1)
        self.copies_wait = True

    def state_size(self, sequence: int) -> int:
        """Return how many bytes a copy of a sequence takes."""
        return int(native.llama_state_seq_get_size(self.handle, sequence))

    def copied(self, sequence: int, *, tail: bool = False) -> mmap.mmap:
        """Return a copy of all that memory holds of a sequence, in llama.cpp's own form; or only of what no token owns alone.

        A mapping of its own: the system has its memory back as soon as it is dropped.

        Raises:
            PassFailed: it takes more than a part of the free memory, a copy is still to be made, or llama.cpp fails.
            OSError: there is no memory for it.
        """
        if self.copies_wait:
            raise PassFailed("memory cannot be copied before the copies that wait are made")
        flags = native.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY if tail else 0
        size = native.llama_state_seq_get_size_ext(self.handle, sequence, flags)
        free = free_ram_bytes()
        if free is not None and size > free // _SHARE_OF_FREE:
            raise PassFailed(f"there is no memory for a copy of {size} bytes, {free} are free")
        copy = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        place = (ctypes.c_uint8 * size).from_buffer(copy)
        if native.llama_state_seq_get_data_ext(self.handle, place, size, sequence, flags) != size:
            raise PassFailed(f"llama.cpp cannot copy what is evaluated of sequence {sequence}")
        return copy

    def put_back(self, sequence: int, copy: mmap.mmap) -> bool:
        """Have a sequence hold what was copied, instead of what it held; say whether that was possible."""
        place = (ctypes.c_uint8 * len(copy)).from_buffer(copy)
        read = native.llama_state_seq_set_data(self.handle, place, len(copy), sequence)
        self.filled(sequence)
        return bool(read)

    def filled(self, sequence: int) -> None:
        """Note that llama.cpp was to put a state into a sequence."""
        self._cleared.discard(sequence)
        if self._has_cells and not self.held(sequence):
            self._take_cells([sequence])

    def close(self) -> None:
        """Free the context; closing twice is harmless."""
        self._handle = None
        self._views.clear()
        self._free()

    def _explain(self, code: int, parts: Sequence[Part]) -> str:
        n_tokens, depth = sum(len(part.tokens) for part in parts), max(p.n_past for p in parts)
        where = f"{n_tokens} tokens at depth {depth}"
        if code == _NO_SLOT:
            return f"no room in the KV cache for {where} (context {self.n_ctx}): a larger one is needed"
        if code == _BAD_BATCH:
            return f"llama.cpp refused a pass of {where}: this is a bug in localspec, report it"
        detail = last_complaint() or f"code {code}"
        return f"llama.cpp failed in a pass of {where} ({detail}): try a smaller context, or fewer layers on the GPU"


def wanted_n_ctx(model: LlamaModel, options: LoadOptions) -> int:
    """Return the tokens of context of a sequence that options mean."""
    return options.n_ctx or min(options.context, model.n_ctx_train)


# llama.cpp asks its abort callback once per graph node, on every pass. Entering Python that
# often would take the GIL hundreds of times a pass, so the callback is libc's own strlen over the flag's two bytes:
# 0 while the flag is clear, 1 once it is set. No Python runs, and no lock is taken.
_ABORT_CALLBACK = ctypes.cast(ctypes.CDLL(None).strlen, native.ggml_abort_callback)
