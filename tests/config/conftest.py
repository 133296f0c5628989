"""A user's home with nothing set, and a repository in it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from localspec.config.keys import Setting
from localspec.config.resolve import Resolved, resolve


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path / "settings"))
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    (tmp_path / "home/code/.git").mkdir(parents=True)
    (tmp_path / "settings").mkdir()
    return tmp_path / "home"


@pytest.fixture
def project(home: Path) -> Path:
    """Where the project's file belongs."""
    return home / "code/localspec.toml"


@pytest.fixture
def user(home: Path) -> Path:
    """Where the user's own file belongs."""
    return home.parent / "settings/config.toml"


@pytest.fixture
def settings(home: Path) -> Callable[..., dict[str, Resolved]]:
    """Resolves in the repository, under the flags and variables that are given."""

    def run(environ: dict[str, str] | None = None, **flags: Setting) -> dict[str, Resolved]:
        return resolve(flags, environ or {}, home / "code")

    return run
