"""How fast passes read memory here: from what passes of a known file cost, else from reading an array."""

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localspec.calibration.calibrated import cached_costs
from localspec.decoding.model import Role
from localspec.options import LoadOptions
from localspec.resources import default_threads

_BUDGET_S = 0.2
_CHUNK_BYTES = 128 << 20  # more than caches hold
_LEAST_BYTES = 400_000_000  # a pass of less spends much of its time on other things than reading


def calibrated_bandwidth(models: Iterable[tuple[Path, int]], options: LoadOptions) -> float | None:
    """Return the bytes per second that passes of one token read; None where none was measured.

    Small models do not count, and of several others the fastest does.

    Args:
        models: files, and how many bytes a token reads of each.
        options: how they would be loaded.
    """
    speeds = [
        read_bytes / costs.of(1)
        for file, read_bytes in models
        if read_bytes >= _LEAST_BYTES
        and (costs := cached_costs(file, options, Role.TARGET)) is not None
    ]
    return max(speeds, default=None)


def measured_bandwidth(budget_s: float = _BUDGET_S, chunk_bytes: int = _CHUNK_BYTES) -> float:
    """Return how many bytes per second the cores read together, within a fraction of a second.

    What other programs take of the cores meanwhile is left out, since threads' own time is taken. Numpy
    reads slower than llama.cpp's kernels: on 2 cores of a Xeon, 22 GB/s where passes read 35.

    Args:
        budget_s: how long to read.
        chunk_bytes: how much each core reads, again and again.
    """
    threads = default_threads()
    chunks = [np.ones(chunk_bytes // 8, np.uint64) for _ in range(threads)]
    end = time.perf_counter() + budget_s

    def read(chunk: NDArray[np.uint64]) -> float:
        """Return the best speed of one core; numpy lets the others run meanwhile."""
        best = 0.0
        while best == 0 or time.perf_counter() < end:
            began = time.thread_time()
            np.bitwise_or.reduce(chunk)
            best = max(best, chunk.nbytes / (time.thread_time() - began))
        return best

    with ThreadPoolExecutor(threads) as pool:
        return threads * max(pool.map(read, chunks))
