"""How fast passes read weights here, by what passes of files that are here cost."""

from collections.abc import Iterable
from pathlib import Path

from localspec.calibration.calibrated import cached_costs
from localspec.decoding.model import Role
from localspec.options import LoadOptions

_LEAST_BYTES = 400_000_000  # a pass of less spends much of its time on other things than reading


def calibrated_bandwidth(models: Iterable[tuple[Path, int]], options: LoadOptions) -> float | None:
    """Return the bytes per second that passes of one token read; None where none was measured.

    Small models do not count, and of several others the fastest does.

    Args:
        models: files, and how many bytes a token reads of each.
        options: how they would be loaded.
    """
    speeds = [
        read_bytes / costs.of(1)
        for file, read_bytes in models
        if read_bytes >= _LEAST_BYTES
        and (costs := cached_costs(file, options, Role.TARGET)) is not None
    ]
    return max(speeds, default=None)
