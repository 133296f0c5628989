"""The memories of this machine that a model could be in: their size, what is free of each, and how fast passes read it."""

import time
from contextlib import suppress

import msgspec
from msgspec import DecodeError, Struct

from localspec.calibration.calibrated import kept_costs
from localspec.decoding.model import Role
from localspec.errors import LocalspecError
from localspec.llama.devices import offloads, placed_on
from localspec.llama.weights_speed import multiplied_per_second
from localspec.models.inventory import inventory
from localspec.models.recommend import MOST_OF_GPU, MOST_OF_RAM, Memory
from localspec.models.registry import Registry
from localspec.models.store import Store
from localspec.options import LoadOptions
from localspec.resources import default_threads, free_ram_bytes, usable_ram_bytes
from localspec.storage.files import private_directory, read_bounded, write_atomic
from localspec.storage.paths import data_dir

_FILE = "memory_speeds.json"
_KEPT_S = 3600
_MOST_BYTES = 1 << 16
_LEAST_BYTES = 400_000_000  # a pass of less spends much of its time on other things than reading


def memories(registry: Registry) -> list[Memory]:
    """Return the memories of this machine, GPUs first, with how fast passes read them.

    Speeds are measured once an hour, so that recommendations stay the same meanwhile.

    Args:
        registry: knows how much a token reads of a model.
    """
    total, free = usable_ram_bytes(), free_ram_bytes()
    gpus = placed_on(LoadOptions())
    speeds = _speeds(registry, [gpu.name for gpu in gpus])
    of_ram, of_gpus = speeds.ram, speeds.gpus
    found = []
    for gpu in gpus:
        if gpu.shares_ram:
            bounds = [gpu.free_bytes] if free is None else [gpu.free_bytes, free]
            # What everything else has, too, is no GPU's to fill.
            found.append(
                Memory(
                    gpu.name,
                    total,
                    of_gpus.bytes_per_s,
                    MOST_OF_RAM,
                    min(bounds),
                    of_gpus.tokens_per_s,
                )
            )
        else:
            found.append(
                Memory(
                    gpu.name,
                    gpu.total_bytes,
                    of_gpus.bytes_per_s,
                    MOST_OF_GPU,
                    gpu.free_bytes,
                    of_gpus.tokens_per_s,
                )
            )
    return [
        *found,
        Memory("RAM", total, of_ram.bytes_per_s, MOST_OF_RAM, free, of_ram.tokens_per_s),
    ]


class _Speed(Struct, frozen=True):
    """How fast passes read a memory, and by sha256 the tokens per second of models whose passes were measured quiet."""

    bytes_per_s: float | None = None
    tokens_per_s: dict[str, float] = {}


class _Speeds(Struct, frozen=True):
    at: float
    machine: list[str]
    ram: _Speed
    gpus: _Speed


def _speeds(registry: Registry, gpus: list[str]) -> _Speeds:
    """Return how fast passes read RAM and GPUs, as it was found in the last hour or is found now."""
    path, now = data_dir() / _FILE, time.time()
    machine = [str(default_threads()), *gpus]
    with suppress(OSError, DecodeError):
        kept = msgspec.json.decode(read_bounded(path, _MOST_BYTES), type=_Speeds)
        if kept.machine == machine and 0 <= now - kept.at < _KEPT_S:
            return kept
    usual = LoadOptions()
    on_cpu = LoadOptions(gpu_layers=0) if offloads(usual) else usual
    of_gpus = _speed(registry, usual) if gpus else _Speed()
    found = _Speeds(now, machine, _speed(registry, on_cpu, default_threads()), of_gpus)
    with suppress(OSError, LocalspecError):
        private_directory(path.parent)
        write_atomic(path, msgspec.json.encode(found))
    return found


def _speed(registry: Registry, options: LoadOptions, threads: int = 0) -> _Speed:
    """Return how fast passes are with some options.

    Of large models that are here, the fastest passes that were measured quiet count. Without any, weights are multiplied by
    so many threads for a fifth of a second, and the faster of that and of passes beside busy programs counts.
    """
    quiet: dict[str, float] = {}
    by_bytes: dict[bool, list[float]] = {True: [], False: []}
    for item in inventory(registry, Store(data_dir())):
        kept = None if item.path is None else kept_costs(item.path, options, Role.TARGET)
        if kept is None:
            continue
        if kept.sure:
            quiet[item.entry.sha256] = 1 / kept.costs.of(1)
        if item.entry.read_bytes >= _LEAST_BYTES:
            by_bytes[kept.sure].append(item.entry.read_bytes / kept.costs.of(1))
    speeds = by_bytes[True] or by_bytes[False]
    if threads and not by_bytes[True]:
        speeds += filter(None, [multiplied_per_second(threads)])
    return _Speed(max(speeds, default=None), quiet)
