"""The memories of this machine that a model could be in: their size, what is free of each, and how fast passes read it."""

import json
import time
from contextlib import suppress

from localspec.calibration.bandwidth import calibrated_bandwidth
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
_MOST_BYTES = 4096


def memories(registry: Registry) -> list[Memory]:
    """Return the memories of this machine, GPUs first, with how fast passes read them.

    Speeds are measured once an hour, so that recommendations stay the same meanwhile.

    Args:
        registry: knows how much a token reads of a model.
    """
    total, free = usable_ram_bytes(), free_ram_bytes()
    gpus = placed_on(LoadOptions())
    of_ram, of_gpus = _speeds(registry, [gpu.name for gpu in gpus])
    found = []
    for gpu in gpus:
        if gpu.shares_ram:
            bounds = [gpu.free_bytes] if free is None else [gpu.free_bytes, free]
            # What everything else has, too, is no GPU's to fill.
            found.append(Memory(gpu.name, total, of_gpus, MOST_OF_RAM, min(bounds)))
        else:
            found.append(Memory(gpu.name, gpu.total_bytes, of_gpus, MOST_OF_GPU, gpu.free_bytes))
    return [*found, Memory("RAM", total, of_ram, free_bytes=free)]


def _speeds(registry: Registry, gpus: list[str]) -> tuple[float | None, float | None]:
    """Return bytes per second that passes read in RAM and on GPUs, of the last hour or measured now."""
    path, now = data_dir() / _FILE, time.time()
    machine = [default_threads(), *gpus]
    with suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads(read_bounded(path, _MOST_BYTES))
        if kept["machine"] == machine and 0 <= now - kept["at"] < _KEPT_S:
            return kept["ram"], kept["gpus"]
    ram, on_gpus = _measured(registry, with_gpus=bool(gpus))
    with suppress(OSError, LocalspecError):
        private_directory(path.parent)
        document = {"at": now, "machine": machine, "ram": ram, "gpus": on_gpus}
        write_atomic(path, json.dumps(document).encode())
    return ram, on_gpus


def _measured(registry: Registry, *, with_gpus: bool) -> tuple[float | None, float | None]:
    """Return what passes of models that are here were measured to read.

    For RAM, weights are multiplied for a fifth of a second, too, and the faster of both counts.
    """
    items = inventory(registry, Store(data_dir()))
    models = [(each.path, each.entry.read_bytes) for each in items if each.path is not None]
    usual = LoadOptions()
    on_cpu = LoadOptions(gpu_layers=0) if offloads(usual) else usual
    # Passes may have been measured beside busy programs.
    speeds = (calibrated_bandwidth(models, on_cpu), multiplied_per_second(default_threads()))
    of_ram = max((each for each in speeds if each is not None), default=None)
    return of_ram, calibrated_bandwidth(models, usual) if with_gpus else None
