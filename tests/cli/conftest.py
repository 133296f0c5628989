"""A machine without models and without a network."""

from pathlib import Path

import pytest

_NOBODY = "http://127.0.0.1:9"  # the discard port: nobody listens


@pytest.fixture
def bare_machine(tmp_path: Path) -> dict[str, str]:
    """The environment of a user who has no model yet, and whose network is down."""
    return {
        "LOCALSPEC_DATA_DIR": str(tmp_path / "data"),
        "HF_HOME": str(tmp_path / "hub"),
        "HF_HUB_OFFLINE": "0",
        "HF_ENDPOINT": _NOBODY,
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path / "wheels"),
    }


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """The data directory of `bare_machine`."""
    return tmp_path / "data"
