"""What this process may have of the machine: cores, and memory. Asks the system; knows nothing of models."""

import ctypes
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/")
_NO_LIMIT = 1 << 60
"""Bytes: groups of the first version say so, or a little more, where there is none."""
_FEATURES_X86 = ("avx", "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "f16c", "fma")
_FEATURES_ARM = ("asimd", "asimddp", "i8mm", "bf16", "sve", "sve2")


@dataclass(frozen=True, slots=True)
class Usage:
    """Memory of one model in one place, in bytes, as predicted or as allocated."""

    weights_bytes: int = 0
    kv_bytes: int = 0
    compute_bytes: int = 0
    output_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return self.weights_bytes + self.kv_bytes + self.compute_bytes + self.output_bytes

    def part(self, share: float) -> "Usage":
        """Return a share of weights and caches, with the same scratch memory."""
        weights, kv = round(share * self.weights_bytes), round(share * self.kv_bytes)
        return Usage(weights, kv, self.compute_bytes, self.output_bytes)

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.weights_bytes + other.weights_bytes,
            self.kv_bytes + other.kv_bytes,
            self.compute_bytes + other.compute_bytes,
            self.output_bytes + other.output_bytes,
        )


def default_threads(root: Path = _ROOT) -> int:
    """Return the number of physical cores that this process may use.

    A second thread on the same core slows llama.cpp's kernels down; so do threads for which a
    container's quota of CPU time is too small, since all wait for the one that is stopped.

    Args:
        root: where `proc` and `sys` are.
    """
    if sys.platform == "linux":
        cores = len({_siblings(root, cpu) for cpu in os.sched_getaffinity(0)})
        return max(1, int(min([cores, *(quota for quota, _ in _quotas(root))])))
    if sys.platform == "darwin":
        return _performance_cores() or os.cpu_count() or 4
    return max(1, (os.cpu_count() or 4) // 2)


def _siblings(root: Path, cpu: int) -> str:
    path = root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings"
    return _text(path) or str(cpu)


def processor_name(root: Path = _ROOT) -> str:
    """Return the name of the processor, or else of its architecture."""
    name = re.search(r"^model name\s*:\s*(.+)$", _text(root / "proc/cpuinfo"), re.MULTILINE)
    return name[1] if name else os.uname().machine


def processor_features(root: Path = _ROOT) -> list[str]:
    """Return the features of the processor that llama.cpp's kernels use; none where the system does not list them."""
    line = re.search(
        r"^(?:flags|Features)\b[^:]*:(.*)$", _text(root / "proc/cpuinfo"), re.MULTILINE
    )
    flags = line[1].split() if line else []
    return [each for each in (*_FEATURES_X86, *_FEATURES_ARM) if each in flags]


def free_ram_bytes(root: Path = _ROOT) -> int | None:
    """Return the memory that can be had without pushing anything out; None if unknown.

    On Linux that is MemAvailable, bounded by what the control groups and the limit of the address space still allow.

    Args:
        root: where `proc` and `sys` are.
    """
    if sys.platform == "darwin":
        return _vm_stat()
    available = _field(root / "proc/meminfo", r"MemAvailable:\s+(\d+) kB")
    bounds = [] if available is None else [available * 1024]
    return min([*bounds, *_rooms(root), *_address_room(root)], default=None)


def total_ram_bytes() -> int:
    """Return the memory that this machine has, but for what is reserved before the system starts."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def usable_ram_bytes(root: Path = _ROOT) -> int:
    """Return the memory that this process may have at most: the machine's, bounded by its control groups.

    Args:
        root: where `proc` and `sys` are.
    """
    return min([total_ram_bytes(), *(group.most for group in _memory_groups(root))])


def limits(root: Path = _ROOT) -> list[str]:
    """Return the limits of memory and processor time around this process, each with the file that says so.

    Args:
        root: where `proc` and `sys` are.
    """
    groups = (
        f"{group.most / 1e6:,.0f} MB of memory ({group.source})"
        for group in _memory_groups(root)
        if group.most < _NO_LIMIT
    )
    quotas = (f"{cores:g} cores ({source})" for cores, source in _quotas(root))
    return [*groups, *quotas]


def _quotas(root: Path) -> Iterator[tuple[float, Path]]:
    """Yield how many cores every control group around this process allows, where it is bounded, and the file that says so."""
    for version, folder in _control_groups(root, "cpu"):
        if version == 2:
            source = folder / "cpu.max"
            values = _text(source).split()
        else:
            source = folder / "cpu.cfs_quota_us"
            values = [_text(source), _text(folder / "cpu.cfs_period_us")]
        quota, period = [part.strip() for part in values] if len(values) == 2 else ("", "")
        if quota.isdecimal() and period.isdecimal() and int(period) > 0:
            yield int(quota) / int(period), source


@dataclass(frozen=True, slots=True)
class _MemoryGroup:
    """A control group that bounds memory, in bytes.

    Args:
        most: what it allows.
        used: what it has used, pages of files included.
        clean: what it could give back of that.
        source: the file that says what it allows.
    """

    most: int
    used: int
    clean: int
    source: Path


def _rooms(root: Path) -> Iterator[int]:
    """Yield how many bytes every control group around this process has left."""
    for group in _memory_groups(root):
        yield max(group.most - group.used + group.clean, 0)


def _address_room(root: Path) -> Iterator[int]:
    """Yield how many bytes the limit of the address space (RLIMIT_AS) leaves, where there is one."""
    most = _field(root / "proc/self/limits", r"^Max address space\s+(\d+)")
    used = _field(root / "proc/self/status", r"^VmSize:\s+(\d+) kB")
    if most is not None and used is not None:
        yield max(most - 1024 * used, 0)


def _memory_groups(root: Path) -> Iterator[_MemoryGroup]:
    """Yield every control group around this process that bounds memory.

    Pages of files, those that were read twice too, and the kernel's reclaimable caches are given back on demand, as in
    MemAvailable. Beyond `memory.high` a group is slowed down until it hangs, so the lower of both bounds counts.
    """
    for version, folder in _control_groups(root, "memory"):
        if version == 2:
            names, used = ["memory.max", "memory.high"], "memory.current"
            clean = ["active_file", "inactive_file", "slab_reclaimable"]
        else:
            names, used = ["memory.limit_in_bytes"], "memory.usage_in_bytes"
            clean = ["total_active_file", "total_inactive_file"]
        bounds = [(_field(folder / name, r"(\d+)"), folder / name) for name in names]
        known = [(most, source) for most, source in bounds if most is not None]
        now = _field(folder / used, r"(\d+)")
        if known and now is not None:
            most, source = min(known)
            stat = folder / "memory.stat"
            free = sum(_field(stat, rf"^{name} (\d+)") or 0 for name in clean)
            yield _MemoryGroup(most, now, min(free, now), source)


def _control_groups(root: Path, controller: str) -> Iterator[tuple[int, Path]]:
    """Yield the folder of every control group around this process that has a controller, and its version."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        base = root / "sys/fs/cgroup" / controllers
        if not base.is_dir():
            base = base.with_name(controller)
        group = base / path.strip("/")
        # In a container the path is that of the host, and only the root of the mount is there.
        for folder in {group, *group.parents, base}:
            if folder.is_relative_to(base):
                yield (1 if controllers else 2), folder


def _performance_cores() -> int:
    """Return macOS's count of performance cores; 0 where it does not tell."""
    libc = ctypes.CDLL(None)
    value, size = ctypes.c_int32(0), ctypes.c_size_t(4)
    name = b"hw.perflevel0.physicalcpu"
    failed = libc.sysctlbyname(name, ctypes.byref(value), ctypes.byref(size), None, 0)
    return 0 if failed else value.value


def _vm_stat() -> int | None:
    try:
        done = subprocess.run(["/usr/bin/vm_stat"], capture_output=True, text=True, timeout=5)  # noqa: PLW1510 - read anyway
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_vm_stat(done.stdout)


def parse_vm_stat(text: str) -> int | None:
    """Return the free memory that macOS's `vm_stat` speaks of; None where it does not."""
    page = re.search(r"page size of (\d+) bytes", text)
    kinds = "free|inactive|speculative|purgeable"
    pages = re.findall(rf"^Pages (?:{kinds}):\s+(\d+)\.", text, re.MULTILINE)
    return int(page[1]) * sum(map(int, pages)) if page and pages else None


def _field(path: Path, pattern: str) -> int | None:
    match = re.search(pattern, _text(path), re.MULTILINE)
    return int(match[1]) if match else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
