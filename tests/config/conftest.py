"""A user's home with nothing set."""

from collections.abc import Callable
from pathlib import Path

import pytest

from localspec.config.keys import Setting
from localspec.config.resolve import Resolved, resolve


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path / "settings"))
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    (tmp_path / "home").mkdir()
    (tmp_path / "settings").mkdir()
    return tmp_path / "home"


@pytest.fixture
def user(home: Path) -> Path:
    """Where the user's own file belongs."""
    return home.parent / "settings/config.toml"


@pytest.fixture
def settings(home: Path) -> Callable[..., dict[str, Resolved]]:
    """Resolves under the flags and variables that are given."""

    def run(environ: dict[str, str] | None = None, **flags: Setting) -> dict[str, Resolved]:
        return resolve(flags, environ or {})

    return run
