"""Machines as data: what the system and llama.cpp would say of each, with some programs running."""

from dataclasses import dataclass

from localspec.llama.devices import Device

GB = 1 << 30


@dataclass(frozen=True, slots=True)
class Computer:
    """A machine; sizes in bytes."""

    total: int  # all RAM
    free: int | None  # None where the system does not tell
    gpus: tuple[Device, ...] = ()
    copied_per_s: float = 12e9

    @property
    def devices(self) -> list[Device]:
        """All devices, as llama.cpp lists them."""
        return [*self.gpus, Device("CPU", "a CPU", self.total, self.total, "CPU", 0, "CPU")]


def _gpu(
    number: int, free: float, total: float, backend: str = "CUDA", kind: str = "GPU"
) -> Device:
    sizes = int(free * GB), int(total * GB)
    name = f"{backend}{number}"
    return Device(name, f"card {number}", *sizes, kind, 0, backend)  # type: ignore[arg-type]


def _ram(total: float, free: float, *gpus: Device, copied_per_s: float = 12e9) -> Computer:
    return Computer(int(total * GB), int(free * GB), gpus, copied_per_s)


MACHINES = {
    "2 GB": _ram(2, 1.3, copied_per_s=4e9),
    "4 GB": _ram(4, 2.9, copied_per_s=6e9),
    "6 GB": _ram(6, 4.7),
    "8 GB": _ram(8, 5.6, copied_per_s=9e9),
    "8 GB, graphics": _ram(8, 6, _gpu(0, 6, 8, "Vulkan", "IGPU")),
    "16 GB": _ram(16, 12),
    "16 GB, GPU of 8": _ram(16, 12, _gpu(0, 7.4, 8)),
    "32 GB": _ram(32, 27, copied_per_s=20e9),
    "32 GB, GPU of 24": _ram(32, 27, _gpu(0, 23, 24)),
    "64 GB, GPUs of 24 and 12": _ram(64, 58, _gpu(0, 23, 24), _gpu(1, 11, 12)),
    "128 GB": _ram(128, 120, copied_per_s=40e9),
    "128 GB, two GPUs of 80": _ram(128, 120, _gpu(0, 79, 80), _gpu(1, 79, 80)),
    "8 GB, worker of 24": _ram(8, 5.6, _gpu(0, 23, 24, "RPC")),
    "32 GB, worker of 24, GPU of 24": _ram(32, 27, _gpu(0, 23, 24, "RPC"), _gpu(0, 23, 24)),
    "16 GB, free unknown": Computer(16 * GB, None),
}
