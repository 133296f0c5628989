"""A control group of its own for a command: what needs more memory than it has is killed by the kernel.

Needs the right to make one, such as root's: below the group that this process is in (version 1), or below one that hands the
memory controller on (version 2).
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_LOOKS = 500


class NotHereError(Exception):
    """This machine cannot do such a harm; the text says why."""


@contextmanager
def memory_group(limit_bytes: int) -> Iterator[Path]:
    """Make a group whose processes have so much memory all together, pages of files included.

    Raises:
        NotHereError: nobody lets us.
    """
    group = next(filter(None, (_made(*place, limit_bytes) for place in _places())), None)
    if group is None:
        raise NotHereError("no memory cgroup can be made here")
    try:
        yield group
    finally:
        _remove(group)


def _made(parent: Path, limits: tuple[str, str], limit_bytes: int) -> Path | None:
    """Make a group and limit it, if that is possible there."""
    group = parent / f"localspec-{os.getpid()}-{time.monotonic_ns()}"
    try:
        group.mkdir()
    except OSError:
        return None
    try:
        (group / limits[0]).write_text(str(limit_bytes))
    except OSError:  # no controller of memory is there
        _remove(group)
        return None
    with suppress(OSError):  # where swap is counted: none of it
        (group / limits[1]).write_text(str(limit_bytes if "memsw" in limits[1] else 0))
    return group


def killed_by_kernel(group: Path) -> int:
    """Return how many processes of a group the kernel has killed for want of memory."""
    for name in ("memory.oom_control", "memory.events"):
        if (group / name).exists():
            counted = dict(line.split() for line in (group / name).read_text().splitlines())
            return int(counted.get("oom_kill", 0))
    return 0


def _places() -> Iterator[tuple[Path, tuple[str, str]]]:
    """Yield where a group may be made, and the files that limit memory and swap there."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        own = path.strip("/")
        if "memory" in controllers.split(","):
            yield _ROOT / "memory" / own, ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
        elif not controllers:
            for parent in (_ROOT / own, *(_ROOT / own).parents):
                with suppress(OSError):
                    if "memory" in (parent / "cgroup.subtree_control").read_text().split():
                        yield parent, ("memory.max", "memory.swap.max")


def _remove(group: Path) -> None:
    """Remove a group, once its last process is buried."""
    for _ in range(_LOOKS):
        try:
            group.rmdir()
        except OSError:
            time.sleep(0.02)
        else:
            return
