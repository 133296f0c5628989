"""Where localspec keeps what it fetched, and how a path is shown; knows nothing of models."""

import os
from pathlib import Path

import platformdirs

from localspec.errors import UsageError

DATA_DIR_VARIABLE = "LOCALSPEC_DATA_DIR"


def data_dir() -> Path:
    """Return the directory for models and history, created readable by its owner only.

    `LOCALSPEC_DATA_DIR` overrides the platform's own place for application data.

    Raises:
        UsageError: the directory is a file, or cannot be created.
    """
    override = os.environ.get(DATA_DIR_VARIABLE)
    try:
        # Absolute, since a child process may be started with another working directory.
        path = (
            Path(override).expanduser().absolute()
            if override
            else platformdirs.user_data_path("localspec")
        )
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: `~` of nobody
        reason = getattr(error, "strerror", None) or str(error)
        place = override or getattr(error, "filename", None) or "of this user"
        raise UsageError(
            f"data directory {shown(place)} cannot be used ({reason}): "
            f"set {DATA_DIR_VARIABLE} to a directory that you can write to"
        ) from error
    return path


def shown(path: str | os.PathLike[str]) -> str:
    """Return a path as it may stand in a one-line message: escaped where it has odd characters."""
    text = os.fspath(path)
    return text if text.isprintable() else ascii(text)
