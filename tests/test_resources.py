"""Cores and memory that this process may have, as Linux and macOS describe them in files and texts made for the purpose."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from localspec.resources import (
    default_threads,
    free_ram_bytes,
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


@linux
@pytest.mark.parametrize(
    ("quota", "threads"),
    [
        (None, 8),
        ("max 100000", 8),
        ("200000 100000", 2),
        ("350000 100000", 3),
        ("20000 100000", 1),
        ("9900000 100000", 8),
        ("", 8),
        ("nonsense", 8),
        ("100000 0", 8),
    ],
)
def test_a_thread_for_each_physical_core_that_a_container_s_quota_allows(
    root: Path, quota: str | None, threads: int
) -> None:
    if quota is not None:
        write(root, {"proc/self/cgroup": "0::/docker/abc", "sys/fs/cgroup/cpu.max": quota})
    assert default_threads(root) == threads


OLD = "sys/fs/cgroup/cpu,cpuacct"


@linux
@pytest.mark.parametrize(
    ("files", "threads"),
    [
        (
            {
                "proc/self/cgroup": "0::/user/mine",
                "sys/fs/cgroup/user/cpu.max": "300000 100000",
                "sys/fs/cgroup/user/mine/cpu.max": "500000 100000",
            },
            3,
        ),
        (
            {
                "proc/self/cgroup": "5:cpu,cpuacct:/box\n4:memory:/box",
                f"{OLD}/box/cpu.cfs_quota_us": 400000,
                f"{OLD}/box/cpu.cfs_period_us": 100000,
                f"{OLD}/cpu.cfs_quota_us": -1,
                f"{OLD}/cpu.cfs_period_us": 100000,
            },
            4,
        ),
    ],
    ids=["the tightest of all", "the first version"],
)
def test_control_groups_bound_the_threads(
    root: Path, files: dict[str, object], threads: int
) -> None:
    assert default_threads(write(root, files)) == threads


@linux
def test_every_cpu_is_a_core_where_the_system_does_not_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 1 <= default_threads() <= len(os.sched_getaffinity(0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 3, 4})
    assert default_threads(tmp_path) == 3


def test_the_processor_is_what_the_system_says(tmp_path: Path) -> None:
    assert (processor_name(tmp_path), processor_features(tmp_path)) == (os.uname().machine, [])
    cpu = "model name\t: CPU 9000\nflags\t\t: fpu avx2 avx512f vmx fma\n"
    write(tmp_path, {"proc/cpuinfo": f"{cpu}\n{cpu}"})
    assert processor_name(tmp_path) == "CPU 9000"
    assert processor_features(tmp_path) == ["avx2", "avx512f", "fma"]
    arm = "BogoMIPS\t: 48\nFeatures\t: fp asimd asimddp i8mm crc32\n"
    write(tmp_path, {"proc/cpuinfo": arm})
    assert processor_features(tmp_path) == ["asimd", "asimddp", "i8mm"]


MEMINFO = {"proc/meminfo": "MemTotal: 16777216 kB\nMemFree: 1 kB\nMemAvailable: 8388608 kB"}
GROUP = "sys/fs/cgroup/user/app"


@linux
@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, None),
        (MEMINFO, 8 * GB),
        (
            {
                **MEMINFO,
                "proc/self/cgroup": "0::/user/app",
                f"{GROUP}/memory.max": 4 * GB,
                f"{GROUP}/memory.current": 3 * GB,
                f"{GROUP}/memory.stat": f"active_file 5\ninactive_file {GB // 2}",
            },
            GB + GB // 2,
        ),
        (
            {
                **MEMINFO,
                "proc/self/cgroup": "0::/user/app",
                f"{GROUP}/memory.max": "max",
                f"{GROUP}/memory.current": 1,
                "sys/fs/cgroup/user/memory.max": 2 * GB,
                "sys/fs/cgroup/user/memory.current": GB,
            },
            GB,
        ),
        (
            {
                **MEMINFO,
                "proc/self/cgroup": "0::/docker/0123abcd",
                "sys/fs/cgroup/memory.max": 2 * GB,
                "sys/fs/cgroup/memory.current": GB,
            },
            GB,
        ),
        (
            {
                **MEMINFO,
                "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/x",
                "sys/fs/cgroup/memory/x/memory.limit_in_bytes": 3 * GB,
                "sys/fs/cgroup/memory/x/memory.usage_in_bytes": 2 * GB,
                "sys/fs/cgroup/memory/x/memory.stat": f"cache 7\ntotal_inactive_file {GB}",
            },
            2 * GB,
        ),
        (
            {
                "proc/self/cgroup": "0::/",
                "sys/fs/cgroup/memory.max": GB,
                "sys/fs/cgroup/memory.current": 2 * GB,
            },
            0,
        ),
    ],
    ids=["unknown", "alone", "a group", "the tightest", "a container", "first version", "beyond"],
)
def test_free_memory_of_linux(tmp_path: Path, files: dict[str, object], free: int | None) -> None:
    assert free_ram_bytes(write(tmp_path, files)) == free


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
