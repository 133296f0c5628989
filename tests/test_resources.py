"""Cores and memory that this process may have, as Linux and macOS describe them in files and texts made for the purpose."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from localspec.resources import (
    default_threads,
    free_ram_bytes,
    limits,
    parse_vm_stat,
    processor_features,
    processor_name,
)

GB = 1 << 30
linux = pytest.mark.skipif(sys.platform == "darwin", reason="reads Linux's files")


def write(root: Path, files: Mapping[str, object]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return root


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system of eight cores, of which each has a second thread."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(16)))
    siblings = "sys/devices/system/cpu/cpu{}/topology/thread_siblings"
    return write(tmp_path, {siblings.format(cpu): cpu % 8 for cpu in range(16)})


CGROUP = "sys/fs/cgroup"


@linux
@pytest.mark.parametrize(
    ("quota", "threads"),
    [
        *[("max 100000", 8), ("9900000 100000", 8), ("", 8), ("nonsense", 8), ("100000 0", 8)],
        *[("200000 100000", 2), ("350000 100000", 3), ("20000 100000", 1)],
    ],
)
def test_a_thread_for_each_physical_core_that_a_container_s_quota_allows(
    root: Path, quota: str, threads: int
) -> None:
    assert default_threads(root) == 8
    write(root, {"proc/self/cgroup": "0::/docker/abc", f"{CGROUP}/cpu.max": quota})
    assert default_threads(root) == threads


@linux
def test_control_groups_bound_the_threads(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tightest = {"user/cpu.max": "300000 100000", "user/mine/cpu.max": "500000 100000"}
    first = {f"cpu,cpuacct/{name}.cfs_period_us": 100000 for name in ("cpu", "box/cpu")}
    first |= {"cpu,cpuacct/box/cpu.cfs_quota_us": 400000, "cpu,cpuacct/cpu.cfs_quota_us": -1}
    cases: list[tuple[str, Mapping[str, object], int]] = [
        ("0::/user/mine", tightest, 3),
        ("5:cpu,cpuacct:/box\n4:memory:/box", first, 4),  # the first version
    ]
    for group, files, threads in cases:
        write(root, {f"{CGROUP}/{name}": content for name, content in files.items()})
        write(root, {"proc/self/cgroup": group})
        assert default_threads(root) == threads
    # Every CPU is a core where the system does not say.
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 3, 4})
    assert default_threads(root / "nowhere") == 3
    monkeypatch.undo()
    assert 1 <= default_threads() <= len(os.sched_getaffinity(0))


def bounded(folder: str, most: object, current: int, stat: str = "") -> dict[str, object]:
    """Return the files of a group of the second version."""
    names = {"max": most, "current": current, "stat": stat}
    return {f"{CGROUP}/{folder}memory.{name}": content for name, content in names.items()}


FIRST = f"{CGROUP}/memory/x/memory"


def test_the_processor_is_what_the_system_says(tmp_path: Path) -> None:
    assert (processor_name(tmp_path), processor_features(tmp_path)) == (os.uname().machine, [])
    cpu = "model name\t: CPU 9000\nflags\t\t: fpu avx2 avx512f vmx fma\n"
    write(tmp_path, {"proc/cpuinfo": f"{cpu}\n{cpu}"})
    assert processor_name(tmp_path) == "CPU 9000"
    assert processor_features(tmp_path) == ["avx2", "avx512f", "fma"]
    arm = "BogoMIPS\t: 48\nFeatures\t: fp asimd asimddp i8mm crc32\n"
    write(tmp_path, {"proc/cpuinfo": arm})
    assert processor_features(tmp_path) == ["asimd", "asimddp", "i8mm"]


APP, V1 = "0::/user/app", "5:cpu,cpuacct:/x\n4:memory:/x"
GROUPS: dict[str, tuple[str, dict[str, object], int]] = {
    "alone": ("", {}, 8 * GB),
    "a group": (APP, bounded("user/app/", 4 * GB, 3 * GB, f"active_file 5\ninactive_file {GB // 2}"), GB + GB // 2 + 5),
    "read twice": (APP, bounded("user/app/", 2 * GB, 2 * GB - 1, f"active_file {GB}\nslab_reclaimable 7"), GB + 8),
    "high": (APP, bounded("user/app/", 4 * GB, GB) | {f"{CGROUP}/user/app/memory.high": 2 * GB}, GB),
    "the tightest": (APP, bounded("user/app/", "max", 1) | bounded("user/", 2 * GB, GB), GB),
    "a container": ("0::/docker/0123abcd", bounded("", 2 * GB, GB), GB),
    "first version": (V1, {f"{FIRST}.limit_in_bytes": 3 * GB, f"{FIRST}.usage_in_bytes": 2 * GB, f"{FIRST}.stat": f"cache 7\ntotal_inactive_file {GB}"}, 2 * GB),
    "beyond": ("0::/", bounded("", GB, 2 * GB), 0),
}  # fmt: skip


@linux
@pytest.mark.parametrize("where", GROUPS)
def test_free_memory_of_linux(tmp_path: Path, where: str) -> None:
    group, files, free = GROUPS[where]
    write(tmp_path, {"proc/self/cgroup": group, **files} if group else files)
    assert free_ram_bytes(tmp_path) == (free if group else None)
    here = "MemTotal: 16777216 kB\nMemFree: 1 kB\nMemAvailable: 8388608 kB"
    assert free_ram_bytes(write(tmp_path, {"proc/meminfo": here})) == free


@linux
def test_the_address_space_bounds_what_is_free_and_limits_say_where_they_are_read(
    tmp_path: Path,
) -> None:
    write(tmp_path, {"proc/meminfo": "MemAvailable: 8388608 kB", "proc/self/cgroup": "0::/app"})
    assert limits(tmp_path) == []
    # How the first version writes none.
    write(tmp_path, bounded("app/", 9_223_372_036_854_771_712, GB))
    assert limits(tmp_path) == []
    write(tmp_path, {"proc/self/status": "VmPeak: 9 kB\nVmSize:\t 1048576 kB"})
    soft = f"Limit  Soft\nMax address space  {3 * GB}  unlimited bytes"
    write(tmp_path, {"proc/self/limits": soft})
    assert free_ram_bytes(tmp_path) == 2 * GB
    write(tmp_path, bounded("app/", 2_000_000_000, GB) | {f"{CGROUP}/app/cpu.max": "150000 100000"})
    memory, cores = limits(tmp_path)
    assert memory == f"2,000 MB of memory ({tmp_path}/{CGROUP}/app/memory.max)"
    assert cores == f"1.5 cores ({tmp_path}/{CGROUP}/app/cpu.max)"


def test_free_memory_of_this_machine_and_of_macos() -> None:
    assert (free_ram_bytes() or 0) > 1 << 20
    text = (
        "Mach Virtual Memory Statistics: (page size of 16384 bytes)\n"
        "Pages free:                               1000.\n"
        "Pages active:                             9999.\n"
        "Pages inactive:                            200.\n"
        "Pages speculative:                          30.\n"
        "Pages purgeable:                             4.\n"
    )
    assert parse_vm_stat(text) == 1234 * 16384
    assert parse_vm_stat("no such thing") is None
