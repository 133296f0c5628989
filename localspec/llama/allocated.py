"""What llama.cpp allocated of which memory, by its own log."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from localspec.llama.backend import log_lines
from localspec.llama.devices import devices

RAM = "RAM"
"""The place of whatever is on no device of its own, such as a buffer of the CPU that a GPU copies from."""

_LINE = re.compile(r": +(\S+) +(model|KV|RS|compute|output) buffer size = +([\d.]+) MiB")
_REMOTE = re.compile(r"RPC(\d+)\[(.+)\]")
_HOST = "_Host"


@dataclass(frozen=True, slots=True)
class Allocated:
    """Buffers in one place, in bytes; llama.cpp logs them to a hundredth of a MiB."""

    weights_bytes: int = 0
    kv_bytes: int = 0
    compute_bytes: int = 0
    output_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """All of them."""
        return self.weights_bytes + self.kv_bytes + self.compute_bytes + self.output_bytes

    def __add__(self, other: "Allocated") -> "Allocated":
        return Allocated(
            self.weights_bytes + other.weights_bytes,
            self.kv_bytes + other.kv_bytes,
            self.compute_bytes + other.compute_bytes,
            self.output_bytes + other.output_bytes,
        )


def allocated() -> dict[str, Allocated]:
    """Return what the log says that was allocated, by places: the RAM, and devices by their names."""
    found: dict[str, Allocated] = {}
    places = _Places()
    for line in log_lines():
        match = _LINE.search(line)
        if match:
            place, size = places.of(match[1]), round(float(match[3]) * 2**20)
            found[place] = found.get(place, Allocated()) + _of_kind(match[2], size)
    return found


def together(several: Iterable[Mapping[str, Allocated]]) -> dict[str, Allocated]:
    """Return the sum of what was allocated several times."""
    found: dict[str, Allocated] = {}
    for each in several:
        for place, buffers in each.items():
            found[place] = found.get(place, Allocated()) + buffers
    return found


def _of_kind(kind: str, size: int) -> Allocated:
    match kind:
        case "model":
            return Allocated(weights_bytes=size)
        case "compute":
            return Allocated(compute_bytes=size)
        case "output":
            return Allocated(output_bytes=size)
    return Allocated(kv_bytes=size)


class _Places:
    """The devices by the names of their buffers, which are not always their own."""

    def __init__(self) -> None:
        gpus = [device for device in devices() if device.is_gpu]
        self._names = {device.name for device in gpus}
        self._remote: dict[str, list[str]] = {}
        for device in gpus:
            self._remote.setdefault(device.description, []).append(device.name)

    def of(self, buffer: str) -> str:
        """Return the place of a buffer: `RPC0[HOST:PORT]` is the first device of a worker, `CUDA0_Split` on CUDA0."""
        remote = _REMOTE.fullmatch(buffer)
        if remote:
            names = self._remote.get(remote[2], [])
            number = int(remote[1])
            return names[number] if number < len(names) else buffer
        if buffer.startswith("Meta("):  # several devices, of which each has a part of every layer
            return buffer
        name, _, _ = buffer.partition("_")
        return name if name in self._names and not buffer.endswith(_HOST) else RAM
