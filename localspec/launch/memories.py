"""The memories of this machine that a model could be in: what is free of each, and how fast passes read it."""

from localspec.calibration.bandwidth import calibrated_bandwidth
from localspec.errors import ModelUnavailable
from localspec.launch.fit import free_memory
from localspec.llama.devices import offloads
from localspec.llama.weights_speed import multiplied_per_second
from localspec.models.inventory import inventory
from localspec.models.recommend import MOST_OF_GPU, MOST_OF_RAM, Memory
from localspec.models.registry import Registry
from localspec.models.store import Store
from localspec.options import LoadOptions
from localspec.resources import default_threads
from localspec.storage.paths import data_dir


def memories(registry: Registry) -> list[Memory]:
    """Return the memories of this machine, GPUs first, with what is free and how fast passes read them.

    Their speed is what passes of models that are here were measured to read. For RAM, weights are
    multiplied for a fifth of a second, too, and the faster of both counts.

    Args:
        registry: knows how much a token reads of a model.

    Raises:
        ModelUnavailable: this system does not tell how much is free.
    """
    machine = free_memory(LoadOptions())
    if machine is None:
        raise ModelUnavailable(
            "this system does not tell how much memory is free: see `localspec pair list`"
        )
    items = inventory(registry, Store(data_dir()))
    models = [(each.path, each.entry.read_bytes) for each in items if each.path is not None]
    usual = LoadOptions()
    on_cpu = LoadOptions(gpu_layers=0) if offloads(usual) else usual
    # Passes may have been measured beside busy programs.
    speeds = (calibrated_bandwidth(models, on_cpu), multiplied_per_second(default_threads()))
    of_ram = max((each for each in speeds if each is not None), default=None)
    of_gpus = calibrated_bandwidth(models, usual) if machine.gpus else None
    ram = machine.ram
    found = []
    for gpu in machine.gpus:
        # What everything else has, too, is no GPU's to fill.
        most = MOST_OF_RAM if gpu.shares_ram else MOST_OF_GPU
        bounds = (gpu.usable_bytes, ram.usable_bytes) if gpu.shares_ram else (gpu.usable_bytes,)
        found.append(Memory(gpu.name, min(bounds), of_gpus, most))
    return [*found, Memory(ram.name, ram.usable_bytes, of_ram)]
