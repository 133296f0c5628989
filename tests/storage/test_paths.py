import stat
from pathlib import Path

import platformdirs
import pytest

from localspec.errors import UsageError
from localspec.storage.paths import config_dir, data_dir, shown


def test_the_variable_decides_and_the_directory_is_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "a" / "b"))
    path = data_dir()
    assert path == tmp_path / "a" / "b"
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert data_dir() == path


def test_a_relative_directory_becomes_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", "here")
    assert data_dir() == tmp_path / "here"


def test_without_the_variable_the_platform_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOCALSPEC_DATA_DIR", raising=False)
    monkeypatch.setattr(platformdirs, "user_data_path", lambda name: tmp_path / name)
    assert data_dir() == tmp_path / "localspec"


@pytest.mark.parametrize("value", ["file", "file/below", "~nobody-of-this-name/x"])
def test_a_directory_that_cannot_be_is_refused_in_one_line(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", value)
    with pytest.raises(UsageError, match=r"set LOCALSPEC_DATA_DIR to a directory") as caught:
        data_dir()
    assert str(caught.value).isprintable()


def test_settings_have_a_directory_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path / "not-there"))
    assert config_dir() == tmp_path / "not-there"
    assert not config_dir().exists()
    monkeypatch.delenv("LOCALSPEC_CONFIG_DIR")
    monkeypatch.setattr(platformdirs, "user_config_path", lambda name: tmp_path / name)
    assert config_dir() == tmp_path / "localspec"
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", "~nobody-of-this-name/x")
    with pytest.raises(UsageError, match="set LOCALSPEC_CONFIG_DIR to a directory"):
        config_dir()


def test_odd_characters_of_a_path_are_escaped() -> None:
    assert shown("a\nb") == r"'a\nb'"
    assert shown(Path("/modèles/a b")) == "/modèles/a b"
