"""Which memories there are, and what a model takes of each, given where its layers go. Pure arithmetic."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from localspec.models.memory import ModelShape, Settings, predict
from localspec.resources import Usage


@dataclass(frozen=True, slots=True)
class Place:
    """A memory that models can be in: the machine's own, or a GPU's. Sizes in bytes.

    `shares_ram` says that a GPU has no memory of its own: what it holds, the RAM holds.
    """

    name: str
    free_bytes: int
    headroom_bytes: int
    shares_ram: bool = False

    @property
    def usable_bytes(self) -> int:
        """What may be filled."""
        return max(self.free_bytes - self.headroom_bytes, 0)


@dataclass(frozen=True, slots=True)
class Machine:
    """Free memory; `gpus` are those that layers of either model may go to."""

    ram: Place
    gpus: tuple[Place, ...] = ()

    @property
    def usable_bytes(self) -> int:
        """What may be filled of all memories, each counted once."""
        own = (gpu.usable_bytes for gpu in self.gpus if not gpu.shares_ram)
        return self.ram.usable_bytes + sum(own)


@dataclass(frozen=True, slots=True)
class Offload:
    """Where layers of a model are to go.

    Args:
        layers: what llama.cpp is told, which counts the last projection as one; None is as many as fit.
        gpus: names of the GPUs that share them, in llama.cpp's order; None are all.
        shares: how much each of these gets; empty goes by their free memory.
        by_tensors: whether each of them has a part of every layer.
        settings: how the model is loaded, if not as the wish says.
        on_cpu: likewise where none of its layers is on a GPU.
    """

    layers: int | None = None
    gpus: tuple[str, ...] | None = None
    shares: tuple[float, ...] = ()
    by_tensors: bool = False
    settings: Settings | None = None
    on_cpu: Settings | None = None

    def places(self, machine: Machine) -> list[int]:
        """Return the numbers of its GPUs among those of a machine."""
        names = [gpu.name for gpu in machine.gpus]
        return list(range(len(names))) if self.gpus is None else [names.index(n) for n in self.gpus]

    def most_layers(self, shape: ModelShape, machine: Machine) -> int:
        """Return how many layers of a model may be on GPUs."""
        if not self.places(machine):
            return 0
        most = len(shape.layers) + 1
        return most if self.layers is None else min(self.layers, most)


def usages(
    shape: ModelShape, settings: Settings, offload: Offload, layers: int, machine: Machine
) -> list[Usage]:
    """Return what a model takes of the RAM, and of every GPU of a machine.

    Args:
        shape: of the model.
        settings: how it is loaded.
        offload: where its layers go.
        layers: how many of them are on GPUs, the last projection counted as one.
        machine: with the GPUs that `offload` names, and what is free of them.
    """
    numbers = offload.places(machine)
    gpus = [machine.gpus[number] for number in numbers]
    found = [Usage()] * (1 + len(machine.gpus))
    weights = offload.shares or [gpu.free_bytes for gpu in gpus]
    if offload.by_tensors and layers:
        found[0], whole = predict(shape, settings, (layers,))
        parts = offload.shares or [1.0] * len(gpus)
        for number, part in zip(numbers, parts, strict=True):
            found[1 + number] = _part(whole, part / sum(parts))
        return found
    ram, *on_gpus = predict(shape, settings, split_layers(layers, weights))
    found[0] = ram
    for number, usage in zip(numbers, on_gpus, strict=True):
        found[1 + number] = usage
    return found


def _part(whole: Usage, share: float) -> Usage:
    """Return what one of several GPUs takes that share every layer; each has the scratch of a whole pass, or less."""
    weights, kv = round(share * whole.weights_bytes), round(share * whole.kv_bytes)
    return replace(whole, weights_bytes=weights, kv_bytes=kv)


def split_layers(count: int, weights: Sequence[float]) -> tuple[int, ...]:
    """Share layers out among GPUs in proportion to some weights, as llama.cpp does, in single precision.

    Args:
        count: layers, the last projection counted as one.
        weights: of each GPU; its free memory, where nobody says how much it is to have.
    """
    if not weights:
        return ()
    ends = np.cumsum(np.array(weights if any(weights) else [1] * len(weights), np.float32))
    bounds = (ends / ends[-1]).tolist()
    shares = [0] * len(weights)
    for layer in range(count):
        shares[bisect_right(bounds, float(np.float32(layer) / np.float32(count)))] += 1
    return tuple(shares)
