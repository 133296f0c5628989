"""What stands beside models and conversations in the data directory."""

from pathlib import Path

import pytest

from localspec.storage.paths import first_time


def test_notices_that_an_earlier_version_noted_are_not_given_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path))
    assert first_time("one")
    assert not first_time("one")
    (tmp_path / "notices_shown").rename(tmp_path / "told")
    assert not first_time("one")
    assert first_time("two")
    assert not (tmp_path / "told").exists()
