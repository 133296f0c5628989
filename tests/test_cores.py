"""Threads by default: physical cores, and no more than a container's quota allows. And what the processor is."""

import os
from pathlib import Path

import pytest

from localspec.resources import default_threads, processor_features, processor_name


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system of eight cores, of which each has a second thread."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(16)))
    for cpu in range(16):
        write(tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings", str(cpu % 8))
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_thread_for_each_physical_core(root: Path) -> None:
    assert default_threads(root) == 8


def test_every_cpu_is_a_core_where_the_system_does_not_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 3, 4})
    assert default_threads(tmp_path) == 3


@pytest.mark.parametrize(
    ("told", "threads"),
    [
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
def test_a_container_s_quota_is_kept(root: Path, told: str, threads: int) -> None:
    write(root / "proc/self/cgroup", "0::/docker/abc\n")
    write(root / "sys/fs/cgroup/cpu.max", told + "\n")
    assert default_threads(root) == threads


def test_the_tightest_of_all_groups_counts(root: Path) -> None:
    write(root / "proc/self/cgroup", "0::/user/mine\n")
    write(root / "sys/fs/cgroup/user/cpu.max", "300000 100000\n")
    write(root / "sys/fs/cgroup/user/mine/cpu.max", "500000 100000\n")
    assert default_threads(root) == 3


def test_the_older_kind_of_groups_is_known_too(root: Path) -> None:
    write(root / "proc/self/cgroup", "5:cpu,cpuacct:/box\n4:memory:/box\n")
    write(root / "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "400000\n")
    write(root / "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n")
    write(root / "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n")
    write(root / "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
    assert default_threads(root) == 4


def test_here_it_is_what_this_process_may_use() -> None:
    assert 1 <= default_threads() <= len(os.sched_getaffinity(0))


def test_the_processor_is_what_the_system_says(tmp_path: Path) -> None:
    file = tmp_path / "proc/cpuinfo"
    assert (processor_name(tmp_path), processor_features(tmp_path)) == (os.uname().machine, [])
    cpu = "model name\t: CPU 9000\nflags\t\t: fpu avx2 avx512f vmx fma\n"
    write(file, f"{cpu}\n{cpu}")
    assert processor_name(tmp_path) == "CPU 9000"
    assert processor_features(tmp_path) == ["avx2", "avx512f", "fma"]
    write(file, "BogoMIPS\t: 48\nFeatures\t: fp asimd asimddp i8mm crc32\n")
    assert processor_features(tmp_path) == ["asimd", "asimddp", "i8mm"]
