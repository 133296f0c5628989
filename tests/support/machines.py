"""Data directories of a test's own."""

from pathlib import Path

from localspec.storage.paths import data_dir


def with_what_is_known(own: Path, *names: str) -> Path:
    """Return a data directory of its own, with what was measured on this machine and, say, the `blobs` of the usual one."""
    own.mkdir(exist_ok=True)
    for name in ("calibration", *names):
        (data_dir() / name).mkdir(parents=True, exist_ok=True)
        (own / name).symlink_to(data_dir() / name)
    return own
