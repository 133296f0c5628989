"""What is said of a store that is whole, and of every way in which it is not."""

import hashlib
from pathlib import Path

import pytest

from localspec.diagnosis.doctor import Fact, files, gather, settings, store
from localspec.models.registry import load_registry
from localspec.storage.token_log import FILE


@pytest.fixture
def blobs(tmp_path: Path) -> Path:
    (tmp_path / "blobs").mkdir()
    return tmp_path / "blobs"


def add(blobs: Path, content: bytes, name: str = "") -> Path:
    path = blobs / (name or hashlib.sha256(content).hexdigest())
    path.write_bytes(content)
    return path


def broken(blobs: Path, *, verify: bool = False) -> list[str]:
    facts = list(store(blobs.parent, verify=verify))
    assert facts[-1].name == "model files"
    return [fact.value for fact in facts if fact.state == "broken"]


def test_a_store_that_is_not_there_yet_is_well(tmp_path: Path) -> None:
    (fact,) = store(tmp_path, verify=True)
    assert fact == Fact("model files", "0, 0 MB (re-hashed)")


def test_a_whole_store_is_counted(blobs: Path) -> None:
    add(blobs, b"a" * 2_000_000)
    add(blobs, b"b" * 3_000_000)
    read: list[str] = []
    (fact,) = store(blobs.parent, verify=True, progress=read.append)
    assert fact.value == "2, 5 MB (re-hashed)"
    assert sorted(read) == sorted(path.name for path in blobs.iterdir())


def test_other_bytes_are_found_when_they_are_read_and_only_then(blobs: Path) -> None:
    path = add(blobs, b"good")
    path.write_bytes(b"evil")
    assert broken(blobs) == []
    (problem,) = broken(blobs, verify=True)
    assert problem.startswith("holds other bytes, of sha256 ")
    assert problem.endswith(f"remove {path}, and pull the model again")


def test_a_known_model_of_another_size_is_found_without_reading(blobs: Path) -> None:
    entry = load_registry().models["smollm2-135m"]
    add(blobs, b"short", str(entry.sha256))
    (problem,) = broken(blobs)
    assert problem.startswith(f"has 5 bytes instead of {entry.size_bytes}")


def test_a_link_into_a_cache_that_was_emptied_is_found(blobs: Path) -> None:
    path = blobs / ("0" * 64)
    path.symlink_to(blobs.parent / "gone")
    (problem,) = broken(blobs, verify=True)
    assert problem.startswith(f"points at {blobs.parent / 'gone'}, which is gone")


def test_strangers_in_the_store_are_found(blobs: Path) -> None:
    add(blobs, b"x", "notes.txt")
    (blobs / ("1" * 64)).mkdir()
    assert [text.split(":")[0] for text in broken(blobs)] == [
        "is not a file",
        "is not named by a sha256",
    ]


def test_settings_are_told_with_their_origin_and_without_passwords(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("LOCALSPEC_MIRRORS", "https://me:s3cret@mirror.example/")
    monkeypatch.chdir(tmp_path)
    facts = {fact.name: fact.value for fact in settings()}
    assert facts["mirrors"] == "['https://***@mirror.example/'] (LOCALSPEC_MIRRORS)"
    assert "models, " in facts["registry"]


def test_what_fails_on_the_way_is_a_fact_and_needs_mending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path))
    (tmp_path / "config.toml").write_text("ctx = 'x'")
    (fact,) = gather(settings)
    assert (fact.name, fact.state) == ("failed", "broken")
    assert "'ctx' is 'x'" in fact.value
    (tmp_path / "file").touch()
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "file"))
    assert gather(files)[-1].state == "broken"


def test_files_are_where_the_variables_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path / "settings"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    facts = {fact.name: fact.value for fact in files()}
    assert facts["data"].startswith(f"{tmp_path / 'data'} (")
    assert facts["hub cache"] == str(tmp_path / "hub/hub")
    assert facts["user settings"] == f"{tmp_path / 'settings/config.toml'} (does not exist)"
    path = tmp_path / "data" / "store" / FILE
    path.parent.mkdir()
    path.write_text("no database " * 1000)
    (broken,) = (fact for fact in files() if fact.name == "store")
    assert broken.state == "broken"
    assert f"{path}: file is not a database: `localspec stats --wipe`" in broken.value
