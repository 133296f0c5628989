"""How fast the processor multiplies by quantised weights: what bounds the speed of a model that is in RAM.

llama.cpp's own kernel, on weights like those of a file in Q4_K_M. On some processors it reads as fast as the
memory gives, on others unpacking takes longer than reading, so the memory's bandwidth alone promises too much.
"""

import ctypes
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from localspec.llama.backend import initialise, library_function

_F32, _Q4_K, _Q6_K = 0, 12, 14
_KINDS = (_Q4_K, _Q4_K, _Q6_K)  # about what a file in Q4_K_M has of each
_SIDE = 2048
_ALL_BYTES = 160 << 20  # more than caches hold
_SPARE_BYTES = 64 << 20  # for the graph and what it works with; what is not used takes no memory
_BUDGET_S = 0.2
_FILL = 0x11  # as 16 bits of a float a scale of 0.0006, which is nothing special


class _Room(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("buffer", ctypes.c_void_p),
        ("without_data", ctypes.c_bool),
    )


def multiplied_per_second(
    threads: int, budget_s: float = _BUDGET_S, all_bytes: int = _ALL_BYTES
) -> float | None:
    """Return how many bytes of weights the threads multiply by a vector in a second, together.

    What other programs take of the cores meanwhile is left out, since threads' own time is taken.

    Args:
        threads: how many multiply at once, each by weights of its own.
        budget_s: how long.
        all_bytes: of weights, about, made for all threads together.

    Returns:
        Bytes per second; None where this build of llama.cpp has no such functions.
    """
    initialise()
    try:
        ggml = _Functions()
    except AttributeError:
        return None
    ggml.cpu_init()
    end = time.perf_counter() + budget_s
    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(lambda _: _speed(ggml, all_bytes // threads, end), range(threads)))


class _Functions:
    """What is called of ggml."""

    def __init__(self) -> None:
        pointer, number, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
        self.cpu_init = library_function("ggml_cpu_init", None)
        self.row_size = library_function("ggml_row_size", size, number, ctypes.c_int64)
        self.init = library_function("ggml_init", pointer, _Room)
        self.free = library_function("ggml_free", None, pointer)
        self.used = library_function("ggml_used_mem", size, pointer)
        self.tensor = library_function(
            "ggml_new_tensor_2d", pointer, pointer, number, ctypes.c_int64, ctypes.c_int64
        )
        self.data = library_function("ggml_get_data", pointer, pointer)
        self.multiply = library_function("ggml_mul_mat", pointer, pointer, pointer, pointer)
        self.graph = library_function("ggml_new_graph", pointer, pointer)
        self.expand = library_function("ggml_build_forward_expand", None, pointer, pointer)
        self.compute = library_function(
            "ggml_graph_compute_with_ctx", number, pointer, pointer, number
        )


def _speed(ggml: Any, most_bytes: int, end: float) -> float:
    """Return the best speed of one thread, in bytes per second of its own time."""
    sizes = {kind: _SIDE * ggml.row_size(kind, _SIDE) for kind in {*_KINDS}}
    kinds = _KINDS * max(1, most_bytes // sum(sizes[kind] for kind in _KINDS))
    weights_bytes = sum(sizes[kind] for kind in kinds)
    context = ggml.init(_Room(weights_bytes + _SPARE_BYTES, None, False))
    try:
        vector = ggml.tensor(context, _F32, _SIDE, 1)
        ctypes.memset(ggml.data(vector), _FILL, _SIDE * ctypes.sizeof(ctypes.c_float))
        graph = ggml.graph(context)
        for kind in kinds:
            weights = ggml.tensor(context, kind, _SIDE, _SIDE)
            ctypes.memset(ggml.data(weights), _FILL, sizes[kind])
            ggml.expand(graph, ggml.multiply(context, weights, vector))
        best, work, left = 0.0, 0, 1
        # Every call takes what it works with out of the context; where that has no more, llama.cpp ends the process.
        while best == 0 or (left > 2 * work and time.perf_counter() < end):
            before = ggml.used(context)
            began = time.thread_time()
            ggml.compute(context, graph, 1)
            best = max(best, weights_bytes / (time.thread_time() - began))
            used = ggml.used(context)
            work, left = used - before, weights_bytes + _SPARE_BYTES - used
        return best
    finally:
        ggml.free(context)
