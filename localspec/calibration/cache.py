"""Measurements as small JSON files, one for each key, in `calibration/` of the data directory.

A file that is damaged, foreign, or of another version counts as none: what it held can be
measured again, so nothing here is worth an error. Knows no models.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from localspec.calibration.key import Key, digest_of
from localspec.storage.files import private_directory, read_bounded, write_atomic

_MOST_BYTES = 1 << 16


def load(directory: Path, key: Key) -> Any:
    """Return what was stored under a key, as JSON gave it and not to be trusted; None if nothing."""
    try:
        entry = json.loads(read_bounded(directory / f"{digest_of(key)}.json", _MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return entry.get("value") if isinstance(entry, dict) and entry.get("key") == key else None


def store(directory: Path, key: Key, value: Mapping[str, object]) -> None:
    """Write a measurement down, readable by its owner only; of two at once, the last one stays.

    Raises:
        OSError: the directory does not take it.
    """
    private_directory(directory)
    content = json.dumps({"key": key, "value": value}, indent=1)
    write_atomic(directory / f"{digest_of(key)}.json", content.encode())
