"""How much memory a process could still take. Asks the system; knows nothing of models."""

import re
import subprocess
import sys
from pathlib import Path

_ROOT = Path("/")


def free_ram_bytes(root: Path = _ROOT) -> int | None:
    """Return the memory that can be had without pushing anything out; None where nobody tells.

    On Linux that is MemAvailable, bounded by what the control groups still allow.

    Args:
        root: where `proc` and `sys` are.
    """
    if sys.platform == "darwin":
        return _vm_stat()
    available = _field(root / "proc/meminfo", r"MemAvailable:\s+(\d+) kB")
    bounds = [] if available is None else [available * 1024]
    return min([*bounds, *_cgroup_rooms(root)], default=None)


def _cgroup_rooms(root: Path) -> list[int]:
    """Return what every control group around this process has left, of both versions."""
    rooms = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            mount, limit, used, cached = "", "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            mount, limit = "memory", "memory.limit_in_bytes"
            used, cached = "memory.usage_in_bytes", "total_inactive_file"
        else:
            continue
        base = root / "sys/fs/cgroup" / mount
        group = base / path.strip("/")
        # In a container the path is that of the host, and only the root of the mount is there.
        for folder in {group, *group.parents, base}:
            if not folder.is_relative_to(base):
                continue
            most, now = _field(folder / limit, r"(\d+)"), _field(folder / used, r"(\d+)")
            if most is not None and now is not None:
                # Pages of files that nobody touched lately are given back on demand.
                idle = _field(folder / "memory.stat", rf"^{cached} (\d+)") or 0
                rooms.append(max(most - now + idle, 0))
    return rooms


def _vm_stat() -> int | None:
    try:
        shown = subprocess.run(["/usr/bin/vm_stat"], capture_output=True, text=True, timeout=5)  # noqa: PLW1510 - read anyway
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_vm_stat(shown.stdout)


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
