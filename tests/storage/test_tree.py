"""Files below a folder, without those that rules of `.gitignore` leave out, held against git itself; and which of them a few letters mean."""

import os
import re
import subprocess
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.session.attachments import completions
from localspec.storage import ignore
from localspec.storage.ignore import IgnoreRules, _lines, _name, _path
from localspec.storage.tree import files_below, fuzzy, list_files
from tests.support.watched_git import watched_git
from tests.waiting import PATIENCE_S


@pytest.fixture(autouse=True)
def _search_has_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_files, "__defaults__", (20_000, PATIENCE_S))
    monkeypatch.setenv("HOME", "/nowhere")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nowhere")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("src/hello.py", "src/deep/help.md", "readme.txt", "build/hello.o", ".env"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / ".gitignore").write_text("build/\n")
    return tmp_path


def repository(folder: Path) -> None:
    subprocess.run(["git", "-C", str(folder), "init", "-q"], check=True)


def test_hidden_files_are_found_only_below_a_folder_that_is_named(folder: Path) -> None:
    (folder / ".github" / "workflows").mkdir(parents=True)
    (folder / ".github" / "workflows" / "ci.yml").write_text("x")
    repository(folder)
    subprocess.run(["git", "-C", str(folder), "add", "-A"], check=True)
    found = list_files(folder)
    assert "readme.txt" in found
    assert not any(name.startswith(".") for name in found)
    assert list_files(folder / ".github") == ["workflows/ci.yml"]


def test_git_or_none_the_same_files_and_no_more_than_is_wanted(folder: Path) -> None:
    (folder / "src" / ".gitignore").write_text("*.md\n!deep/kept.md\n")
    for name in ("src/deep/kept.md", ".hidden/x.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("x")
    for _ in range(2):
        assert set(files_below(folder)) == {"src/hello.py", "src/deep/kept.md", "readme.txt"}
        assert len(list_files(folder, most=2)) == 2
        assert len(list_files(folder, most=None, within_s=None)) == 3
        repository(folder)


def test_git_is_not_started(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository(folder)
    (folder / ".elsewhere").mkdir()
    path, note = watched_git(folder / ".elsewhere")
    monkeypatch.setenv("PATH", path)
    assert "readme.txt" in list_files(folder)
    assert not note.exists()
    subprocess.run(["git", "--version"], check=True)
    assert note.exists(), "it would have been noted"


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
    found = set(list_files(folder))
    assert "projects/own/kept.o" in found
    assert not {"projects/own/left.tmp", "build/hello.o", "projects/own/"} & found


def test_a_folder_inside_a_repository_obeys_those_above_it(folder: Path) -> None:
    (folder / "src" / "deep" / "x.log").write_text("x")
    (folder / "src" / ".gitignore").write_text("/deep/*.log\n/hello.py\n")
    (folder / "build" / "inner").mkdir()
    (folder / "build" / "inner" / "y.txt").write_text("x")
    assert "x.log" in list_files(folder / "src" / "deep")
    repository(folder)
    assert list_files(folder / "src" / "deep") == ["help.md"]
    assert list_files(folder / "build" / "inner") == []


def test_the_users_own_rules_hold(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = folder / ".home"
    (home / ".config" / "git").mkdir(parents=True)
    (home / ".config" / "git" / "ignore").write_text("*.md\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    for _ in range(2):
        assert set(list_files(folder)) == {"src/hello.py", "readme.txt"}
        repository(folder)
    (home / "mine").write_text("readme.*\n")
    (home / ".gitconfig").write_text('[core]\n\texcludesFile = "~/mine"\n')
    assert set(list_files(folder)) == {"src/hello.py", "src/deep/help.md"}
    (folder / ".git" / "info").mkdir(exist_ok=True)
    (folder / ".git" / "info" / "exclude").write_text("/src/hello.py\n")
    assert list_files(folder) == ["src/deep/help.md"]


def test_links_lead_nowhere(folder: Path) -> None:
    (folder / "out").symlink_to("/etc")
    (folder / "src" / "round").symlink_to(folder)
    assert {"out", "src/round"} <= set(list_files(folder))
    assert not any(name.startswith(("out/", "src/round/")) for name in list_files(folder))


def test_what_stands_in_place_of_rules_harms_nothing(folder: Path, tmp_path: Path) -> None:
    rules = folder / ".gitignore"
    everything = {"src/hello.py", "src/deep/help.md", "readme.txt", "build/hello.o"}
    (tmp_path / ".elsewhere").write_text("*\n")
    for make in (os.mkfifo, lambda rules: rules.symlink_to(tmp_path / ".elsewhere"), Path.mkdir):
        rules.unlink()
        make(rules)
        assert set(list_files(folder)) == everything
    rules.rmdir()
    rules.write_bytes(b"\xff\xfe\n[\n\\\n*.o\r\n!\n/\n")
    assert set(list_files(folder)) == everything - {"build/hello.o"}
    for each in ("gitdir: /nowhere\n", "gitdir: .git\n"):
        (folder / ".git").write_text(each)
        assert set(list_files(folder)) == everything - {"build/hello.o"}
    (folder / os.fsdecode(b"\xff.txt")).write_text("x")
    assert set(list_files(folder)) == everything - {"build/hello.o"}


def test_letters_together_in_the_name_of_the_file_come_first() -> None:
    names = ["shell/x.py", "a/hello.py", "h/e/l/p.py", "b/xhe.py", "zzz"]
    assert fuzzy("he", names, 9) == ["a/hello.py", "b/xhe.py", "shell/x.py", "h/e/l/p.py"]
    assert fuzzy("HEL", names, 1) == ["a/hello.py"]


def test_a_mention_is_completed_over_the_tree(folder: Path) -> None:
    repository(folder)
    assert [name for name, _ in completions("he", folder)] == ["src/hello.py", "src/deep/help.md"]
    assert [name for name, _ in completions("src/", folder)][:2] == ["src/deep/", "src/hello.py"]
    assert completions("../he", folder / "src") == []


# Left out, since git does otherwise than its manual says: `**` beside other letters, and a slash in brackets or behind a
# backslash, which ends a part here.
_LETTERS = r"a b ab c .o * ** ? / **/ ! # - \* \!"
_GLOBS = r"[ab] [!a] [^b-c] []a] [b-a] [a- [\]a] [--b] [a-b-c] *.o *a*b a*c"
_PIECES = [*_LETTERS.split(), *_GLOBS.split(), " ", "\\ ", "\r"]
_NAMES = ("a", "b", "ab", "c", "a.o", "ab.o", "*", "#", "-", "]", "!a", "a b", " ")


@pytest.fixture(scope="module")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("rules")
    for top, below in product(("a", "b", "ab", "c.o"), ("a", "b/c", "#")):
        (made / top / below).mkdir(parents=True, exist_ok=True)
        for name in _NAMES:
            (made / top / below / name).is_dir() or (made / top / below / name).write_text("x")
    for name in _NAMES:
        (made / name).is_dir() or (made / name).write_text("x")
    subprocess.run(["git", "init", "-q", made], check=True)
    return made


_LINE = (
    st.lists(st.sampled_from(_PIECES), min_size=1, max_size=5)
    .map("".join)
    .filter(lambda each: not re.search(r"\[a-[^]]*/|[^/]\*\*|\*\*[^/]", each))
)
_LINES = st.lists(_LINE, max_size=5)


@given(_LINES, _LINES)
def test_what_git_leaves_out_is_left_out(ruled: Path, top: list[str], below: list[str]) -> None:
    (ruled / ".gitignore").write_text("\n".join(top))
    (ruled / "a" / ".gitignore").write_text("\n".join(below))
    git = ("git", "-c", "core.excludesFile=", "-C", ruled, "ls-files", "-z", "--others")
    listed = subprocess.run([*git, "--exclude-standard"], capture_output=True, check=True).stdout
    names = {each for each in listed.decode().split("\0") if each and ".gitignore" not in each}
    assert set(list_files(ruled, None, None)) == names


def test_what_stands_between_stars_is_sought_once() -> None:
    """So no line takes long, however many there are: what was put at its first place is not tried at others."""
    for regex, groups in ((_name("*a*b*c"), 2), (_path(["**", "a", "**", "b", "**", "c"]), 2)):
        assert regex is not None
        assert regex.count("(?>") == groups
    for line, path in (("*a*b*c", "xaybzc"), ("**/a/**/b/**/c", "a/x/b/c")):
        rules = IgnoreRules(((_lines(line), 0),))
        assert rules.ignores(path, path.rpartition("/")[2], is_folder=False)


def test_a_file_of_rules_is_read_up_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".gitignore").write_text("a\nb\nc\n")
    monkeypatch.setattr(ignore, "_MOST_BYTES", 4)
    rules = IgnoreRules().inside(str(tmp_path), 0)
    assert [rules.ignores(each, each, is_folder=False) for each in "abc"] == [True, True, False]
