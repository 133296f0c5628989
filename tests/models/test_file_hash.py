"""The sha256 of a model: known by the store, or computed once."""

import hashlib
import os
from pathlib import Path

import pytest

from localspec.models.gguf import model_files
from localspec.models.store import model_sha256
from tests.models.gguf_builder import model_file

SHA256 = hashlib.sha256(model_file()).hexdigest()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine" / "model.gguf"
    path.parent.mkdir()
    path.write_bytes(model_file())
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def hashed(file: Path, root: Path) -> tuple[str, bool]:
    """Return the hash, and whether the file was read for it."""
    shares: list[float] = []
    return model_sha256(model_files(file), root, shares.append), shares != []


def test_a_file_is_read_once_until_it_changes(file: Path, root: Path) -> None:
    assert hashed(file, root) == (SHA256, True)
    assert hashed(file, root) == (SHA256, False)
    assert str(file) not in (root / "hashes.json").read_text()
    os.utime(file, ns=(1, 1))
    assert hashed(file, root) == (SHA256, True)


@pytest.mark.parametrize("folder", ["data/blobs", "hub/models--a--b/blobs"])
def test_what_a_store_calls_by_its_sha256_is_not_read(
    file: Path, root: Path, tmp_path: Path, folder: str
) -> None:
    # As imported files lie there: a link to the user's own, which has another name.
    blob = tmp_path / folder / SHA256
    blob.parent.mkdir(parents=True)
    blob.symlink_to(file)
    (tmp_path / "snapshot.gguf").symlink_to(blob)
    assert hashed(blob, root) == (SHA256, False)
    assert hashed(tmp_path / "snapshot.gguf", root) == (SHA256, False)


@pytest.mark.parametrize("content", ["{", "[]", '{"a": 5}'])
def test_a_damaged_list_costs_only_the_time_to_read_again(
    file: Path, root: Path, content: str
) -> None:
    (root / "hashes.json").write_text(content)
    assert hashed(file, root) == (SHA256, True)
    assert hashed(file, root) == (SHA256, False)


def test_without_a_place_to_keep_it_there_still_is_a_hash(file: Path, tmp_path: Path) -> None:
    assert hashed(file, tmp_path / "none") == (SHA256, True)
