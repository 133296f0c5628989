"""Rules of `.gitignore`, held against git itself."""

import re
import subprocess
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.storage import ignore
from localspec.storage.ignore import IgnoreRules, _lines, _name, _path
from localspec.storage.tree import list_files

# Left out, since git does otherwise than its manual says: `**` beside other letters, and a slash in brackets or behind a
# backslash, which ends a part here.
_LETTERS = r"a b ab c .o * ** ? / **/ ! # - \* \!"
_GLOBS = r"[ab] [!a] [^b-c] []a] [b-a] [a- [\]a] [--b] [a-b-c] *.o *a*b a*c"
_PIECES = [*_LETTERS.split(), *_GLOBS.split(), " ", "\\ ", "\r"]
_NAMES = ("a", "b", "ab", "c", "a.o", "ab.o", "*", "#", "-", "]", "!a", "a b", " ")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
def test_what_git_leaves_out_is_left_out(folder: Path, top: list[str], below: list[str]) -> None:
    (folder / ".gitignore").write_text("\n".join(top))
    (folder / "a" / ".gitignore").write_text("\n".join(below))
    git = ("git", "-c", "core.excludesFile=", "-C", folder, "ls-files", "-z", "--others")
    listed = subprocess.run([*git, "--exclude-standard"], capture_output=True, check=True).stdout
    names = {each for each in listed.decode().split("\0") if each and ".gitignore" not in each}
    assert set(list_files(folder, None, None)) == names


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
