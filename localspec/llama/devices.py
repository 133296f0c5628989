"""Devices that llama.cpp can compute on here: those of this build, and those that were registered since."""

import ctypes
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from localspec.errors import UsageError
from localspec.llama.backend import initialise, library_function
from localspec.options import LoadOptions
from localspec.resources import total_ram_bytes

Kind = Literal["CPU", "GPU", "IGPU", "ACCEL", "META"]
_KINDS: tuple[Kind, ...] = ("CPU", "GPU", "IGPU", "ACCEL", "META")
"""`ggml_backend_dev_type`, in its order. ACCEL, such as BLAS, is used beside the CPU, and never a place for layers."""
REMOTE = "RPC"
"""The backend of other machines' devices."""
_LAVAPIPE = "llvmpipe"
"""How Mesa's software driver calls its device."""
_ANY = "auto"
_FREE_OF_REMOTE_RAM = 0.75
"""What is taken to be free of another machine's RAM: of a CPU, llama.cpp reports all of it as free."""


@dataclass(frozen=True, slots=True)
class Device:
    """One device, under the name that `--device` takes.

    Args:
        name: such as CUDA0, Metal, RPC0 or CPU.
        description: the hardware's own name; of a device of RPC, where its worker is.
        free_bytes: free memory as the backend reports it now; of another machine's RAM, three quarters.
        total_bytes: all of its memory.
        kind: what it is; IGPU shares the CPU's memory, unless some is reserved for it.
        handle: llama.cpp's pointer.
        backend: what drives it, such as CUDA or RPC.
        hardware: which card of the machine it is; empty if unknown. Two backends may drive one card.
    """

    name: str
    description: str
    free_bytes: int
    total_bytes: int
    kind: Kind
    handle: int
    backend: str = ""
    hardware: str = ""

    @property
    def is_gpu(self) -> bool:
        """Whether layers can be offloaded to it."""
        return self.kind in {"GPU", "IGPU"}

    @property
    def shares_ram(self) -> bool:
        """Whether it is a GPU of this machine that has no memory of its own, but the CPU's."""
        if self.backend == REMOTE or not self.is_gpu:
            return False
        # llama.cpp calls Apple's GPUs, and software that stands in for one, GPUs like others.
        is_apple = (sys.platform, platform.machine()) == ("darwin", "arm64")
        # Of an integrated one that has more than the RAM, much was reserved for it, and is no part of the RAM.
        is_integrated = self.kind == "IGPU" and self.total_bytes <= total_ram_bytes()
        return is_integrated or is_apple or self.description.startswith(_LAVAPIPE)

    @property
    def identity(self) -> str:
        """What tells it from others; the number of a device of another machine changes with the order of workers."""
        return f"{REMOTE if self.backend == REMOTE else self.name}: {self.description}"


class _Props(ctypes.Structure):
    """`ggml_backend_dev_props`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("description", ctypes.c_char_p),
        ("memory_free", ctypes.c_size_t),
        ("memory_total", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("device_id", ctypes.c_char_p),
        ("caps", ctypes.c_bool * 5),
    )


def devices() -> list[Device]:
    """Return every device, GPUs as well as the CPU, those of other machines among them."""
    initialise()
    count = library_function("ggml_backend_dev_count", ctypes.c_size_t)
    get = library_function("ggml_backend_dev_get", ctypes.c_void_p, ctypes.c_size_t)
    return [_describe(get(index)) for index in range(count())]


def _describe(handle: int) -> Device:
    pointer = ctypes.c_void_p
    fill = library_function("ggml_backend_dev_get_props", None, pointer, ctypes.POINTER(_Props))
    registry = library_function("ggml_backend_dev_backend_reg", pointer, pointer)
    name = library_function("ggml_backend_reg_name", ctypes.c_char_p, pointer)
    props = _Props()
    fill(handle, ctypes.byref(props))
    backend, free_bytes = _text(name(registry(handle))), props.memory_free
    if backend == REMOTE and free_bytes == props.memory_total:
        free_bytes = int(free_bytes * _FREE_OF_REMOTE_RAM)
    return Device(
        name=_text(props.name),
        description=_text(props.description),
        free_bytes=free_bytes,
        total_bytes=props.memory_total,
        kind=_KINDS[props.type],
        handle=handle,
        backend=backend,
        hardware=_text(props.device_id),
    )


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode(errors="replace")


def offloads(options: LoadOptions) -> bool:
    """Return whether any layer of a model that is loaded so is on a GPU."""
    return bool(placed_on(options))


def placed_on(options: LoadOptions, known: Sequence[Device] | None = None) -> list[Device]:
    """Return the devices that share the layers of a model that is loaded so; none where all stay on the CPU.

    Args:
        options: how it is loaded.
        known: all devices; None asks llama.cpp.

    Raises:
        UsageError: a name is not a device, or so many devices cannot share a model that way.
    """
    if options.gpu_layers == 0:
        return []
    chosen = _chosen(options.devices, devices() if known is None else known)
    if options.split == "none":
        return chosen[:1]
    names = ", ".join(device.name for device in chosen) or "none"
    if options.split == "tensor" and len(chosen) < 2:
        raise UsageError(
            f"--split tensor shares layers out among two devices or more, and has {names}: use --split layers"
        )
    if options.split == "tensor" and any(device.backend == REMOTE for device in chosen):
        # With llama-cpp-python 0.3.36 it loads, and every logit is NaN.
        raise UsageError(f"--split tensor does not work over RPC ({names}): use --split layers")
    if options.shares and len(options.shares) != len(chosen):
        raise UsageError(
            f"--tensor-split {options.tensor_split} is for {len(options.shares)} devices, "
            f"and those used are {len(chosen)} ({names}): give a number for each"
        )
    return chosen


def _chosen(names: Sequence[str], known: Sequence[Device]) -> list[Device]:
    """Return the devices that names mean, without those that layers cannot be offloaded to.

    Raises:
        UsageError: a name is not a device.
    """
    if not names or [name.lower() for name in names] == [_ANY]:
        return _usual(known)
    return [device for device in named_devices(names, known) if device.is_gpu]


def named_devices(names: Sequence[str], known: Sequence[Device]) -> list[Device]:
    """Return the devices of these names, in their order, each once.

    Raises:
        UsageError: a name is not a device.
    """
    by_name = {device.name.lower(): device for device in known}
    for name in names:
        if name.lower() not in by_name:
            listed = ", ".join(device.name for device in known)
            raise UsageError(f"there is no device {name!r} here: choose one of {listed}")
    return [by_name[name] for name in dict.fromkeys(map(str.lower, names))]


def _usual(known: Sequence[Device]) -> list[Device]:
    """Return the devices that llama.cpp would choose itself: those of other machines first, so that less goes over the network.

    A card that two backends drive counts once, and integrated GPUs where there is no other of this machine.
    """
    remote = [each for each in known if each.kind == "GPU" and each.backend == REMOTE]
    own: dict[str, Device] = {}
    for each in known:
        if each.kind == "GPU" and each.backend != REMOTE:
            own.setdefault(each.hardware or each.name, each)
    integrated = [each for each in known if each.kind == "IGPU"]
    of_one_backend = [each for each in integrated if each.backend == integrated[0].backend]
    return [*remote, *(own.values() or of_one_backend)]
