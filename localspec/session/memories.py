"""The memories of this machine that a model could be in: their size, what is free of each, and how fast passes read it."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from statistics import median

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import DecodeError, Struct

from localspec.calibration.calibrated import stored_costs
from localspec.decoding.costs import PassCosts
from localspec.decoding.model import Role
from localspec.llama.devices import offloads, placed_on
from localspec.models.inventory import inventory
from localspec.models.registry import Registry
from localspec.models.store import Store
from localspec.options import LoadOptions
from localspec.plan.recommend import MOST_OF_GPU, MOST_OF_RAM, ON_A_CPU, ON_A_GPU, Memory
from localspec.resources import default_threads, free_ram_bytes, usable_ram_bytes
from localspec.storage.files import read_bounded, write_atomic
from localspec.storage.paths import data_dir

_FILE, _MOST_BYTES = "memory_speeds.json", 1 << 16
_FRESH_S = 3600
_LEAST_BYTES = 400_000_000  # a pass of less spends much of its time on other things than reading
_COPIED_BYTES = 48 << 20  # by every thread, however many: more than its share of the caches
# Copies take some ms each, so that handing them to threads takes next to nothing of a try.
_COPIES, _TRIES = 3, 5
_FREE_SHARE = 8  # of the free RAM, an eighth is copied at most


def memories(registry: Registry) -> list[Memory]:
    """Return the memories of this machine, GPUs first, with how fast passes read them.

    Speeds are measured once an hour, so that recommendations stay the same meanwhile.

    Args:
        registry: knows how much a token reads of a model.
    """
    total, free = usable_ram_bytes(), free_ram_bytes()
    gpus = placed_on(LoadOptions())
    speeds = _speeds(registry, [gpu.name for gpu in gpus])
    result = []
    for gpu in gpus:
        size, most, gpu_free = gpu.total_bytes, MOST_OF_GPU, gpu.free_bytes
        # What passes of several tokens cost on those without a memory of their own differs from one to the next.
        usual: PassCosts | None = ON_A_GPU
        if gpu.shares_ram:  # what everything else has, too, is no GPU's to fill
            size, most, usual = total, MOST_OF_RAM, None
            gpu_free = gpu_free if free is None else min(gpu_free, free)
        result.append(speeds.gpus.memory(gpu.name, size, most, gpu_free, usual))
    return [*result, speeds.ram.memory("RAM", total, MOST_OF_RAM, free, ON_A_CPU)]


class _Speed(Struct, frozen=True):
    """How fast passes read a memory, and what those of models cost that were measured quiet: by sha256, and of the largest."""

    bytes_per_s: float | None = None
    passes: dict[str, PassCosts] = {}
    largest: PassCosts | None = None

    def memory(
        self, name: str, size: int, most: float, free: int | None, usual: PassCosts | None
    ) -> Memory:
        """Return the memory that is so fast; `usual` is what passes cost where none of a large model were measured."""
        speed, measured = self.bytes_per_s, self.largest
        return Memory(
            name, size, speed, most, free, self.passes, measured or usual, measured is not None
        )


class _Speeds(Struct, frozen=True):
    at: float
    machine: list[str]
    ram: _Speed
    gpus: _Speed


def _speeds(registry: Registry, gpus: list[str]) -> _Speeds:
    """Return how fast passes read RAM and GPUs, as it was measured in the last hour or is measured now."""
    path, now = data_dir() / _FILE, time.time()
    machine = [str(default_threads()), *gpus]
    with suppress(OSError, DecodeError):
        stored = msgspec.json.decode(read_bounded(path, _MOST_BYTES), type=_Speeds)
        if stored.machine == machine and 0 <= now - stored.at < _FRESH_S:
            return stored
    usual = LoadOptions()
    on_cpu = LoadOptions(gpu_layers=0) if offloads(usual) else usual
    of_gpus = _speed(registry, usual) if gpus else _Speed()
    speeds = _Speeds(now, machine, _speed(registry, on_cpu, default_threads()), of_gpus)
    with suppress(OSError):  # a folder that only reads was asked of is not made for it
        write_atomic(path, msgspec.json.encode(speeds))
    return speeds


def _speed(registry: Registry, options: LoadOptions, threads: int = 0) -> _Speed:
    """Return how fast passes are with some options.

    Of large models that are here, the fastest passes that were measured quiet count. Without any, so many threads copy
    memory for a moment, and the faster of that and of passes next to busy programs counts.
    """
    quiet: dict[str, PassCosts] = {}
    largest_bytes, largest = _LEAST_BYTES - 1, None
    by_bytes: dict[bool, list[float]] = {True: [], False: []}
    for item in inventory(registry, Store(data_dir())):
        stored = None if item.path is None else stored_costs(item.path, options, Role.TARGET)
        if stored is None:
            continue
        if stored.sure:
            quiet[item.entry.sha256] = stored.costs
            if item.entry.read_bytes > largest_bytes:
                largest_bytes, largest = item.entry.read_bytes, stored.costs
        if item.entry.read_bytes >= _LEAST_BYTES:
            by_bytes[stored.sure].append(item.entry.read_bytes / stored.costs.of(1))
    speeds = by_bytes[True] or by_bytes[False]
    if threads and not by_bytes[True]:
        speeds.append(copied_per_second(threads))
    return _Speed(max(speeds, default=None), quiet, largest)


def copied_per_second(threads: int) -> float:
    """Return how many bytes so many threads copy in a second, all at the same time; the median of some tries.

    Copying reads and writes, so that it takes about as long as reading and unpacking quantised weights
    (docs/decisions/recommendations.md has the figures). Reading alone promises too much. Where little is free,
    fewer threads copy: with less a thread, caches would be measured. Only the time that the threads run counts: with
    that of others' turns, beside busy programs a tenth of the speed was measured, and kept for an hour.
    """
    free = free_ram_bytes()
    if free is not None:
        threads = max(1, min(threads, free // _FREE_SHARE // (2 * _COPIED_BYTES)))
    pairs = [np.empty((2, _COPIED_BYTES), np.uint8) for _ in range(threads)]

    def copy(pair: npt.NDArray[np.uint8]) -> float:
        start_s = time.thread_time()
        for _ in range(_COPIES):
            np.copyto(pair[1], pair[0])
        return time.thread_time() - start_s

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda pair: pair.fill(1), pairs))
        took_s = [max(pool.map(copy, pairs)) for _ in range(_TRIES)]
    return threads * _COPIES * _COPIED_BYTES / max(median(took_s), 1e-9)
