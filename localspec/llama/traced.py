"""TracedContext: passes on a CPU that are watched node by node, to the bit.

Logits hide most of what differs inside: before each quantised matrix llama.cpp rounds what goes in to 8 bits, until one day a
value stands at the edge.
"""

import ctypes
import zlib
from collections.abc import Sequence
from math import prod

import numpy as np

from localspec.decoding.cancel import CancelFlag
from localspec.decoding.model import Logits
from localspec.llama.backend import library_function
from localspec.llama.batch import Part
from localspec.llama.model import LlamaModel
from localspec.llama.native import native
from localspec.llama.native_context import NativeContext
from localspec.llama.sequence import LlamaSequence
from localspec.options import LoadOptions

_F32 = 0
_VIEWS = {"NONE", "RESHAPE", "VIEW", "PERMUTE", "TRANSPOSE"}
_PROBE = 13
"""Tokens of the pass that shows which nodes hold a share for each token: no other dimension is likely to be as large."""
_BITS = 32


class _Tensor(ctypes.Structure):
    """The beginning of ggml's struct."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("buffer", ctypes.c_void_p),
        ("ne", ctypes.c_int64 * 4),
        ("nb", ctypes.c_size_t * 4),
    )


class TracedContext(LlamaSequence):
    """A context of one sequence on a CPU, whose rows say, too, whether anything in the graph differed.

    Args:
        model: where the weights are.
        cancel: stops its passes.
        options: how to make it.
    """

    def __init__(self, model: LlamaModel, cancel: CancelFlag | None, options: LoadOptions) -> None:
        self._traced = _TracedNative(model, CancelFlag() if cancel is None else cancel, options)
        super().__init__(self._traced)

    def logits(self, tokens: Sequence[int], rows: int) -> Logits:
        """Return rows: the logits, and behind them the digest of a token's share of all nodes, a signed zero for each bit.

        Two rows with the same logits differ then in bits, and by 0 in size.
        """
        self._traced.begin(rows)
        found = super().logits(tokens, rows)
        digests = np.array(self._traced.end(rows), dtype=np.int64)[:, None]
        bits = (digests >> np.arange(_BITS)) & 1
        return np.hstack([found, np.where(bits == 1, np.float32(-0.0), np.float32(0.0))])

    def close(self) -> None:
        """Free the context; closing twice is harmless."""
        self._traced.close()


class _TracedNative(NativeContext):
    """Makes passes and digests what they compute.

    Attributes:
        digests: of the last traced pass, by tokens.
    """

    _width = 0
    """Tokens of the pass that is traced; 0 where none is."""
    _number = 0
    """Nodes that ggml asked about in this pass."""

    def __init__(self, model: LlamaModel, cancel: CancelFlag, options: LoadOptions) -> None:
        pointer = ctypes.c_void_p
        self._operation = library_function("ggml_op_desc", ctypes.c_char_p, pointer)
        self._data = library_function("ggml_get_data", pointer, pointer)
        self._is_contiguous = library_function("ggml_is_contiguous", ctypes.c_bool, pointer)
        self._is_host = library_function("ggml_backend_buffer_is_host", ctypes.c_bool, pointer)
        # Kept, since ctypes drops a callback that nothing refers to.
        self._callback = native.ggml_backend_sched_eval_callback(self._look)
        self._nodes: set[int] | None = None
        self.digests: list[int] = []
        super().__init__(model, cancel, options, options.max_rows)
        self._find_nodes()

    def _params(self, options: LoadOptions, rows: int) -> native.llama_context_params:
        params = super()._params(options, rows)
        params.cb_eval = self._callback
        return params

    def begin(self, n_tokens: int) -> None:
        """Trace the next pass, which has so many tokens, or as many as it is padded to."""
        self._width = max(n_tokens, self.pass_width)
        self._number, self.digests = 0, [0] * self._width

    def end(self, n_tokens: int) -> list[int]:
        """Return the digests of the first tokens of the traced pass, of all that was computed for each, and of how many nodes there were."""
        self._width, count = 0, self._number.to_bytes(8)
        return [zlib.crc32(count, digest) for digest in self.digests[:n_tokens]]

    def _find_nodes(self) -> None:
        """Find the nodes in which each token has a share of its own: those whose slowest dimension is that of the tokens."""
        width, found = min(_PROBE, self.max_rows), set[int]()
        self.begin(width)
        self._found = found
        self.decode([Part(0, [0] * width, n_past=0, rows=width)])
        self.clear(0)
        self._nodes, self._width = found, 0

    def _look(self, address: int, ask: bool, _data: object) -> bool:
        """Have ggml stop behind the nodes that are digested, and digest them."""
        if not self._width:
            return not ask
        if ask:
            self._number += 1
            if self._nodes is not None:
                return self._number in self._nodes
            if self._is_of_tokens(address):
                self._found.add(self._number)
            return False
        self._digest(address)
        return True

    def _is_of_tokens(self, address: int) -> bool:
        """Return whether a node of the probe holds numbers of its own that can be read here, a share for each token."""
        tensor = _Tensor.from_address(address)
        if tensor.type != _F32 or self._operation(address).decode() in _VIEWS:
            return False
        slowest = next((size for size in reversed(tensor.ne) if size > 1), 1)
        if slowest != self._width or not self._is_contiguous(address):
            return False
        return bool(tensor.buffer and self._is_host(tensor.buffer))

    def _digest(self, address: int) -> None:
        """Take a node's shares into the digests."""
        size = 4 * prod(_Tensor.from_address(address).ne)
        share = size // self._width
        numbers = memoryview((ctypes.c_char * size).from_address(self._data(address)))
        self.digests = [
            zlib.crc32(numbers[at * share : (at + 1) * share], digest)
            for at, digest in enumerate(self.digests)
        ]
