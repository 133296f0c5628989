"""`localspec index`, as its users have it."""

import json
import signal
from pathlib import Path

import pytest

from tests.cli.command import assert_one_complaint, localspec, started
from tests.hostile_repository import hostile_repository
from tests.llama import tiny_models
from tests.waiting import PATIENCE_S


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
    assert added.err == "localspec: my-notes: 1 files, 1 passages (1 added, 1 not text)\n"
    found = localspec("index", "search", "green", "tea", env=env, cwd=folder)
    assert found.out == "tea.md:1-3  Tea\n    # Tea Green tea needs eighty degrees.?[2J\n"
    assert localspec("index", "search", "coffee", env=env).err == "nothing matches\n"
    (folder / "tea.md").write_text("Black tea needs ninety degrees.")
    assert "(1 changed, 1 not text)" in localspec("index", "update", env=env).err
    (document,) = json.loads(localspec("index", "search", "tea", "--json", env=env).out)
    assert document["path"] == str(folder / "tea.md")
    assert (document["first"], document["text"]) == (1, "Black tea needs ninety degrees.")
    (status,) = json.loads(localspec("index", "status", "--json", env=env).out)
    assert (status["name"], status["files"], status["added"]) == ("my-notes", 1, [str(folder)])
    assert localspec("index", "status", env=env).out.startswith("my-notes  1 files  1 passages  ")
    assert localspec("index", "rm", "my-notes", env=env).code == 0
    assert "no index yet" in localspec("index", "status", env=env).err
    assert (folder / "tea.md").exists()


def test_one_of_several_indexes_is_named_and_a_damaged_one_removed(
    env: dict[str, str], folder: Path, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        assert localspec("index", "add", str(folder), "-n", name, env=env).code == 0
    complaint = localspec("index", "search", "tea", env=env)
    assert_one_complaint(complaint, 2)
    assert "choose one of one, two" in complaint.err
    assert localspec("index", "search", "tea", "-n", "two", env=env).code == 0
    (tmp_path / "data" / "index" / "two.db").write_bytes(b"something else" * 99)
    damaged = localspec("index", "search", "tea", "-n", "two", env=env)
    assert_one_complaint(damaged, 1)
    assert "`localspec index rm`" in damaged.err
    assert localspec("index", "rm", "two", env=env).code == 0


def test_vectors_are_made_kept_up_to_date_and_dropped(
    env: dict[str, str], folder: Path, tmp_path: Path
) -> None:
    model = tiny_models.write_llama(tmp_path / "tiny.gguf", pooling=1)
    assert localspec("import", str(model), env=env).code == 0
    added = localspec("index", "add", ".", "--vectors", "tiny", env=env, cwd=folder)
    assert (added.code, added.out) == (0, "")
    assert "my-notes: 1 new vectors by tiny\n" in added.err
    assert "  vectors by tiny  " in localspec("index", "status", env=env).out
    assert "tea.md:1-3" in localspec("index", "search", "teas?", env=env).out
    (folder / "tea.md").write_text("Black tea needs ninety degrees.")
    assert "1 new vectors by tiny" in localspec("index", "update", env=env).err
    assert localspec("rm", "tiny", env=env).code == 0
    left = localspec("index", "search", "tea", env=env)
    assert "tea.md" in left.out
    assert "localspec pull tiny" in left.err
    again = localspec("index", "add", ".", "--vectors", "off", env=env, cwd=folder)
    assert (again.code, "vectors" in again.err) == (0, False)
    (status,) = json.loads(localspec("index", "status", "--json", env=env).out)
    assert status["vectors"] is None


def test_a_setting_gives_new_indexes_vectors_and_a_wrong_model_leaves_no_index(
    env: dict[str, str], folder: Path, tmp_path: Path
) -> None:
    complaint = localspec("index", "add", ".", "--vectors", "nothing", env=env, cwd=folder)
    assert_one_complaint(complaint, 3)
    assert "'nothing'" in complaint.err
    assert "no index yet" in localspec("index", "status", env=env).err
    tiny_models.write_llama(tmp_path / "tiny.gguf", pooling=1)
    assert localspec("import", str(tmp_path / "tiny.gguf"), env=env).code == 0
    assert localspec("index", "add", ".", "-n", "old", env=env, cwd=folder).code == 0
    env = {**env, "LOCALSPEC_VECTORS": "tiny"}
    assert "vectors" not in localspec("index", "add", ".", "-n", "old", env=env, cwd=folder).err
    added = localspec("index", "add", ".", "-n", "new", env=env, cwd=folder)
    assert "new: 1 new vectors by tiny" in added.err


def test_watching_takes_in_what_changes_until_it_is_interrupted(
    env: dict[str, str], folder: Path
) -> None:
    assert localspec("index", "add", ".", env=env, cwd=folder).code == 0
    with started("index", "watch", "--every", "1", env=env) as process:
        assert process.stderr is not None
        assert b"1 files, 1 passages" in process.stderr.readline()
        (folder.parent / "new.md").write_text("Cocoa is stirred.")
        (folder.parent / "new.md").rename(folder / "new.md")  # it is never seen half written
        assert b"(1 added" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
    assert "new.md" in localspec("index", "search", "cocoa", env=env).out


def test_a_program_that_a_repository_names_is_not_run(env: dict[str, str], tmp_path: Path) -> None:
    repository = hostile_repository(tmp_path / "repository", tmp_path / "ran")
    assert "1 files, 1 passages" in localspec("index", "add", str(repository), env=env).err
    assert not (tmp_path / "ran").exists()
