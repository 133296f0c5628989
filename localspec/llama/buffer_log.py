"""What llama.cpp allocated of which memory, by its own log."""

import re
from collections.abc import Iterable, Mapping

from localspec.llama.backend import log_lines
from localspec.llama.devices import devices
from localspec.resources import Usage

RAM = "RAM"
"""The place of whatever is on no device of its own, such as a buffer of the CPU that a GPU copies from."""

_LINE = re.compile(r": +(\S+) +(model|KV|RS|compute|output) buffer size = +([\d.]+) MiB")
_FIELDS = {"model": "weights_bytes", "KV": "kv_bytes", "RS": "kv_bytes"}
_FIELDS |= {"compute": "compute_bytes", "output": "output_bytes"}
_REMOTE = re.compile(r"RPC(\d+)\[(.+)\]")
_HOST = "_Host"


def allocated() -> dict[str, Usage]:
    """Return what the log says that was allocated, by places: the RAM, and devices by their names."""
    sizes: dict[str, Usage] = {}
    places = _Places()
    for line in log_lines():
        match = _LINE.search(line)
        if match:
            place, size = places.of(match[1]), round(float(match[3]) * 2**20)
            sizes[place] = sizes.get(place, Usage()) + Usage(**{_FIELDS[match[2]]: size})
    return sizes


def together(several: Iterable[Mapping[str, Usage]]) -> dict[str, Usage]:
    """Return the sum of what was allocated several times."""
    sizes: dict[str, Usage] = {}
    for each in several:
        for place, buffers in each.items():
            sizes[place] = sizes.get(place, Usage()) + buffers
    return sizes


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
