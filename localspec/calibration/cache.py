"""Measurements as small JSON files, one for each key, in `calibration/` of the data directory.

A file that is damaged, foreign, or of another version counts as none: what it held can be
measured again, so nothing here is worth an error. Knows no models.
"""

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from localspec.calibration.key import Key, digest_of

_MOST_BYTES = 1 << 16


def load(directory: Path, key: Key) -> Any:
    """Return what was stored under a key, as JSON gave it and not to be trusted; None if nothing."""
    path = directory / f"{digest_of(key)}.json"
    try:
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return None
        entry = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return entry.get("value") if isinstance(entry, dict) and entry.get("key") == key else None


def store(directory: Path, key: Key, value: Mapping[str, object]) -> None:
    """Write a measurement down, readable by its owner only; of two at once, the last one stays.

    Raises:
        OSError: the directory does not take it.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, beside = tempfile.mkstemp(prefix=".", suffix=".new", dir=directory)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump({"key": key, "value": value}, stream, indent=1)
        Path(beside).replace(directory / f"{digest_of(key)}.json")
    except BaseException:
        with suppress(OSError):
            Path(beside).unlink()
        raise
