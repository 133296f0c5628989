"""How many threads suit the CPU: one for each core that this process may use."""

import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/")


def default_threads(root: Path = _ROOT) -> int:
    """Return the number of physical cores that this process may use.

    A second thread on the same core slows llama.cpp's kernels down; so do threads for which a
    container's quota of CPU time is too small, since all wait for the one that is stopped.

    Args:
        root: where `proc` and `sys` are.
    """
    if sys.platform == "linux":
        cores = len({_siblings(root, cpu) for cpu in os.sched_getaffinity(0)})
        return max(1, int(min([cores, *_quotas(root)])))
    if sys.platform == "darwin":
        return _performance_cores() or os.cpu_count() or 4
    return max(1, (os.cpu_count() or 4) // 2)


def _siblings(root: Path, cpu: int) -> str:
    path = root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings"
    return _text(path) or str(cpu)


def _quotas(root: Path) -> Iterator[float]:
    """Yield how many cores every control group around this process allows, where it is bounded."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers not in {"", "cpu", "cpu,cpuacct"}:
            continue
        base = root / "sys/fs/cgroup" / controllers
        group = base / path.strip("/")
        # In a container the path is that of the host, and only the root of the mount is there.
        for folder in {group, *group.parents, base}:
            if not folder.is_relative_to(base):
                continue
            if controllers:
                told = [_text(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
            else:
                told = _text(folder / "cpu.max").split()
            quota, period = [part.strip() for part in told] if len(told) == 2 else ("", "")
            if quota.isdecimal() and period.isdecimal() and int(period) > 0:
                yield int(quota) / int(period)


def _performance_cores() -> int:
    """Return macOS's count of performance cores; 0 where it does not tell."""
    libc = ctypes.CDLL(None)
    value, size = ctypes.c_int32(0), ctypes.c_size_t(4)
    name = b"hw.perflevel0.physicalcpu"
    failed = libc.sysctlbyname(name, ctypes.byref(value), ctypes.byref(size), None, 0)
    return 0 if failed else value.value


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
