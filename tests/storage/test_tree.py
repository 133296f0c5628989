"""Files below a folder, and which of them a few letters mean."""

import subprocess
from pathlib import Path

import pytest

from localspec.storage import tree
from localspec.storage.tree import files_below, found_below, fuzzy
from localspec.ui.attach import completions
from tests.waiting import PATIENCE_S


@pytest.fixture(autouse=True)
def _git_has_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(found_below, "__defaults__", (20_000, PATIENCE_S))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("src/hello.py", "src/deep/help.md", "readme.txt", "build/hello.o", ".env"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / ".gitignore").write_text("build/\n")
    return tmp_path


def repository(folder: Path, *settings: str) -> None:
    subprocess.run(["git", "-C", str(folder), "init", "-q"], check=True)
    for each in settings:
        subprocess.run(["git", "-C", str(folder), "config", *each.split("=")], check=True)


def test_what_git_ignores_is_left_out(folder: Path) -> None:
    repository(folder)
    assert set(files_below(folder)) == {"src/hello.py", "src/deep/help.md", "readme.txt"}


def test_a_hidden_file_is_found_only_where_git_tracks_it(folder: Path) -> None:
    (folder / "src" / ".secret").mkdir()
    (folder / "src" / ".secret" / "key.txt").write_text("x")
    repository(folder)
    subprocess.run(["git", "-C", str(folder), "add", ".gitignore"], check=True)
    found = found_below(folder)
    assert ".gitignore" in found
    assert not {".env", "src/.secret/key.txt"} & set(found)


def test_no_more_is_found_than_is_wanted(folder: Path) -> None:
    for _ in range(2):
        assert len(found_below(folder, most=2)) == 2
        assert len(found_below(folder, most=None, within_s=None)) >= 3
        repository(folder)


def test_a_program_that_a_checkout_names_is_not_run(folder: Path) -> None:
    program = folder / "monitor"
    program.write_text(f"#!/bin/sh\ntouch {folder / 'ran'}\n")
    program.chmod(0o700)
    repository(folder, f"core.fsmonitor={program}")
    assert "src/hello.py" in files_below(folder)
    assert not (folder / "ran").exists()


def test_outside_a_repository_ignored_files_are_left_out_likewise(folder: Path) -> None:
    (folder / "src" / ".gitignore").write_text("*.md\n!deep/kept.md\n")
    for name in ("src/deep/kept.md", ".hidden/x.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("x")
    assert set(found_below(folder)) == {"src/hello.py", "src/deep/kept.md", "readme.txt"}
    assert not (folder / ".git").exists()


@pytest.mark.parametrize("inside", [False, True])
def test_repositories_in_a_folder_have_their_own_rules(folder: Path, *, inside: bool) -> None:
    own = folder / "projects" / "own"
    own.mkdir(parents=True)
    for name in ("kept.o", "left.tmp"):
        (own / name).write_text("x")
    (own / ".gitignore").write_text("*.tmp\n")
    repository(own)
    if inside:
        repository(folder)
    found = set(found_below(folder))
    assert "projects/own/kept.o" in found
    assert not {"projects/own/left.tmp", "build/hello.o", "projects/own/"} & found


def test_without_git_hidden_files_are_left_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "_by_git", lambda *_: None)
    assert "build/hello.o" in files_below(folder)
    assert ".env" not in files_below(folder)


def test_letters_together_in_the_name_of_the_file_come_first() -> None:
    names = ["shell/x.py", "a/hello.py", "h/e/l/p.py", "b/xhe.py", "zzz"]
    assert fuzzy("he", names, 9) == ["a/hello.py", "b/xhe.py", "shell/x.py", "h/e/l/p.py"]
    assert fuzzy("HEL", names, 1) == ["a/hello.py"]


def test_a_mention_is_completed_over_the_tree(folder: Path) -> None:
    repository(folder)
    assert [name for name, _ in completions("he", folder)] == ["src/hello.py", "src/deep/help.md"]
    assert [name for name, _ in completions("src/", folder)][:2] == ["src/deep/", "src/hello.py"]
    assert completions("../he", folder / "src") == []
