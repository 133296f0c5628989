"""`localspec index`, as its users have it."""

import json
from pathlib import Path

import pytest

from tests.cli.command import assert_one_complaint, localspec


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"LOCALSPEC_DATA_DIR": str(tmp_path / "data")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "My Notes").mkdir()
    (tmp_path / "My Notes" / "tea.md").write_text("# Tea\n\nGreen tea needs eighty degrees.\x1b[2J")
    (tmp_path / "My Notes" / "picture.png").write_bytes(b"\0")
    return tmp_path / "My Notes"


def test_a_folder_is_indexed_searched_and_forgotten(env: dict[str, str], folder: Path) -> None:
    added = localspec("index", "add", ".", env=env, cwd=folder)
    assert (added.code, added.out) == (0, "")
    assert added.err == "localspec: my-notes: 1 files, 1 passages (1 added, 1 without text)\n"
    found = localspec("index", "search", "green", "tea", env=env, cwd=folder)
    assert found.out == "tea.md:1-3  Tea\n    # Tea Green tea needs eighty degrees.?[2J\n"
    assert localspec("index", "search", "coffee", env=env).err == "nothing matches\n"
    (folder / "tea.md").write_text("Black tea needs ninety degrees.")
    assert "(1 changed, 1 without text)" in localspec("index", "update", env=env).err
    (document,) = json.loads(localspec("index", "search", "tea", "--json", env=env).out)
    assert document["path"] == str(folder / "tea.md")
    assert (document["first"], document["text"]) == (1, "Black tea needs ninety degrees.")
    (status,) = json.loads(localspec("index", "status", "--json", env=env).out)
    assert (status["name"], status["files"], status["added"]) == ("my-notes", 1, [str(folder)])
    assert localspec("index", "status", env=env).out.startswith("my-notes: 1 files, 1 passages, ")
    assert localspec("index", "rm", "my-notes", env=env).code == 0
    assert "no index yet" in localspec("index", "status", env=env).err
    assert (folder / "tea.md").exists()


def test_one_of_several_indexes_has_to_be_named(env: dict[str, str], folder: Path) -> None:
    for name in ("one", "two"):
        assert localspec("index", "add", str(folder), "-n", name, env=env).code == 0
    complaint = localspec("index", "search", "tea", env=env)
    assert_one_complaint(complaint, 2)
    assert "name one of one, two" in complaint.err
    assert localspec("index", "search", "tea", "-n", "two", env=env).code == 0
    complaint = localspec("index", "rm", "three", env=env)
    assert_one_complaint(complaint, 2)
    assert "choose one of one, two" in complaint.err


def test_a_damaged_index_is_complained_of_and_can_be_removed(
    env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "data" / "index").mkdir(parents=True)
    (tmp_path / "data" / "index" / "notes.db").write_bytes(b"something else" * 99)
    complaint = localspec("index", "search", "tea", env=env)
    assert_one_complaint(complaint, 1)
    assert "`localspec index rm`" in complaint.err
    assert localspec("index", "rm", "notes", env=env).code == 0
