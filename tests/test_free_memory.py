"""Free memory as Linux and macOS tell it, from files and texts made for the purpose."""

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from localspec.resources import free_ram_bytes, parse_vm_stat

GB = 1 << 30

linux = pytest.mark.skipif(sys.platform == "darwin", reason="reads Linux's files")


def write(root: Path, files: Mapping[str, object]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return root


MEMINFO = {"proc/meminfo": "MemTotal: 16777216 kB\nMemFree: 1 kB\nMemAvailable: 8388608 kB"}


@linux
def test_without_limits_it_is_what_the_kernel_calls_available(tmp_path: Path) -> None:
    assert free_ram_bytes(write(tmp_path, MEMINFO)) == 8 * GB


@linux
def test_a_control_group_bounds_it_and_its_idle_file_pages_count_as_free(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/user/app"
    files = {
        **MEMINFO,
        "proc/self/cgroup": "0::/user/app",
        f"{group}/memory.max": 4 * GB,
        f"{group}/memory.current": 3 * GB,
        f"{group}/memory.stat": f"active_file 5\ninactive_file {GB // 2}",
    }
    assert free_ram_bytes(write(tmp_path, files)) == GB + GB // 2


@linux
def test_the_tightest_group_above_counts(tmp_path: Path) -> None:
    files = {
        **MEMINFO,
        "proc/self/cgroup": "0::/user/app",
        "sys/fs/cgroup/user/app/memory.max": "max",
        "sys/fs/cgroup/user/app/memory.current": 1,
        "sys/fs/cgroup/user/memory.max": 2 * GB,
        "sys/fs/cgroup/user/memory.current": GB,
    }
    assert free_ram_bytes(write(tmp_path, files)) == GB


@linux
def test_in_a_container_the_root_of_the_mount_counts(tmp_path: Path) -> None:
    files = {
        **MEMINFO,
        "proc/self/cgroup": "0::/docker/0123abcd",
        "sys/fs/cgroup/memory.max": 2 * GB,
        "sys/fs/cgroup/memory.current": GB,
    }
    assert free_ram_bytes(write(tmp_path, files)) == GB


@linux
def test_groups_of_the_first_version_count_likewise(tmp_path: Path) -> None:
    files = {
        **MEMINFO,
        "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/x",
        "sys/fs/cgroup/memory/x/memory.limit_in_bytes": 3 * GB,
        "sys/fs/cgroup/memory/x/memory.usage_in_bytes": 2 * GB,
        "sys/fs/cgroup/memory/x/memory.stat": f"cache 7\ntotal_inactive_file {GB}",
    }
    assert free_ram_bytes(write(tmp_path, files)) == 2 * GB


@linux
def test_a_group_beyond_its_limit_has_nothing_left(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/",
        "sys/fs/cgroup/memory.max": GB,
        "sys/fs/cgroup/memory.current": 2 * GB,
    }
    assert free_ram_bytes(write(tmp_path, files)) == 0


@linux
def test_a_system_that_does_not_tell_is_not_guessed(tmp_path: Path) -> None:
    assert free_ram_bytes(tmp_path) is None


def test_this_machine_tells() -> None:
    assert (free_ram_bytes() or 0) > 1 << 20


def test_macos_counts_pages_that_can_be_had() -> None:
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
