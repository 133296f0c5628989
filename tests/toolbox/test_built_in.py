import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.messages import ToolCall, ToolResult
from localspec.storage.tree import list_files
from localspec.toolbox.built_in import BuiltIn
from localspec.toolbox.folder import Folder
from localspec.toolbox.rules import Rule, Rules
from localspec.toolbox.toolbox import Access
from tests.hostile_repository import SETUP
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.process
RULES = Rules(deny=(Rule("*", ".env"), Rule("read_file", "private")))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/add.py").write_text("def add(a, b):\n    return a - b\n")
    (tmp_path / "readme.md").write_text("# Adds\nBy add.\n")
    (tmp_path / ".env").write_text("KEY=hidden\n")
    (tmp_path / "private").mkdir()
    (tmp_path / "private/note").write_text("hidden add\n")
    return tmp_path


@pytest.fixture
def box(folder: Path) -> Iterator[BuiltIn]:
    made = BuiltIn(Folder(folder), RULES)
    yield made
    made.close()


def called(name: str, **arguments: object) -> ToolCall:
    return ToolCall("c1", name, json.dumps(arguments))


def done(box: BuiltIn, name: str, **arguments: object) -> ToolResult:
    call = called(name, **arguments)
    proposal = box.propose(call)
    if proposal.error is not None:
        return ToolResult(call.id, proposal.error, is_error=True)
    return box.call(call, threading.Event())


def test_each_says_what_it_takes_and_needs(box: BuiltIn) -> None:
    assert [each.name for each in box.tools] == [
        *("read_file", "list_folder", "search_folder", "write_file", "edit_file", "run_command")
    ]
    access = {
        "read_file": Access.READ,
        "write_file": Access.WRITE,
        "edit_file": Access.WRITE,
        "run_command": Access.RUN,
    }
    for each in box.tools:
        assert set(each.parameters["required"]) <= set(each.parameters["properties"])
        assert box.propose(called(each.name)).access is access.get(each.name, Access.READ)


def test_a_file_is_read_whole_or_by_lines(box: BuiltIn, folder: Path) -> None:
    assert done(box, "read_file", path="readme.md").text == "# Adds\nBy add."
    assert (
        done(box, "read_file", path="readme.md", first_line=2).text
        == "By add.\n[lines 2 to 2 of 2]"
    )
    assert (
        done(box, "read_file", path="readme.md", first_line=None, last_line=None).text
        == "# Adds\nBy add."
    )
    (folder / "long").write_text("".join(f"line {n}\n" for n in range(1, 1001)))
    text = done(box, "read_file", path="long").text
    assert text.endswith("line 400\n[lines 1 to 400 of 1000]")
    (folder / "wide").write_text("x" * 500_000)
    assert len(done(box, "read_file", path="wide").text) < 17_000


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"path": "none"}, "no file"),
        ({"path": "../x"}, "outside"),
        ({"path": "/etc/passwd"}, "outside"),
        ({"path": "a\0b"}, "NUL"),
        ({"path": ".env"}, "rules"),
        ({"path": "x/../.env"}, "rules"),
        ({"path": "./.env"}, "rules"),
        ({"path": 3}, "`str`"),
        ({}, "missing"),
        ({"path": None}, "`str`"),
        ({"path": "readme.md", "mode": "r"}, "unknown field `mode`"),
        ({"path": "\ud800"}, "half of a character"),
        ({"path": "readme.md", "first_line": 9}, "2 lines"),
        ({"path": "readme.md", "first_line": True}, "`int`"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_says_why(
    box: BuiltIn, arguments: dict[str, object], word: str
) -> None:
    result = done(box, "read_file", **arguments)
    assert result.is_error
    assert word in result.text


def test_arguments_that_are_no_json_are_an_error(box: BuiltIn) -> None:
    for text in ("{", "[]", "3", "[" * 100_000):
        assert "JSON" in str(box.propose(ToolCall("c", "read_file", text)).error)
        assert box.call(ToolCall("c", "read_file", text), threading.Event()).is_error


def test_a_rule_holds_for_links_and_for_what_is_read_in_passing(box: BuiltIn, folder: Path) -> None:
    (folder / "harmless").symlink_to(".env")
    assert "rules" in done(box, "read_file", path="harmless").text
    found = done(box, "search_folder", pattern="add|hidden").text
    assert "src/add.py:1: def add(a, b):" in found
    assert "hidden" not in found


def test_a_link_that_is_swapped_after_the_question_is_refused(box: BuiltIn, folder: Path) -> None:
    (folder / "link").symlink_to("readme.md")
    call = called("write_file", path="link", content="new\n")
    assert box.propose(call).subject == "readme.md"
    (folder / "link").unlink()
    (folder / "link").symlink_to("src/add.py")
    result = box.call(call, threading.Event())
    assert result.is_error
    assert "changed since" in result.text
    assert (folder / "src/add.py").read_text().startswith("def add")


def test_the_folder_is_listed_without_what_git_ignores(
    box: BuiltIn, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_files, "__defaults__", (20_000, PATIENCE_S))
    subprocess.run(["git", "init", "-q", folder], check=True)
    (folder / ".gitignore").write_text("*.log\nbuild/\n")
    (folder / "x.log").write_text("add")
    (folder / "build").mkdir()
    (folder / "build/y").write_text("add")
    assert done(box, "list_folder").text.splitlines() == ["private/", "readme.md", "src/"]
    assert done(box, "list_folder", path="src").text == "add.py"
    assert done(box, "list_folder", path="./src/").text == "add.py"
    assert "log" not in done(box, "search_folder", pattern="add").text
    assert done(box, "list_folder", path="none").is_error
    assert done(box, "list_folder", path="..").is_error


def test_a_hidden_folder_is_listed_where_it_is_named(box: BuiltIn, folder: Path) -> None:
    (folder / ".github").mkdir()
    (folder / ".github/ci.yml").write_text("add: 1\n")
    assert ".github" not in done(box, "list_folder").text
    assert ".github" not in done(box, "search_folder", pattern="add").text
    assert done(box, "list_folder", path=".github").text == "ci.yml"
    assert (
        done(box, "search_folder", pattern="add", path=".github").text == ".github/ci.yml:1: add: 1"
    )


@pytest.mark.parametrize(
    ("name", "arguments"), [("list_folder", {}), ("search_folder", {"pattern": "n"})]
)
def test_what_a_command_leaves_in_git_is_not_run_by_reading(
    box: BuiltIn, folder: Path, tmp_path: Path, name: str, arguments: dict[str, object]
) -> None:
    """A confined command prepares `.git`, so that git would write where the command may not."""
    (folder / "setup.sh").write_text(SETUP)
    payload = tmp_path / "private" / ".." / "ran"
    done(box, "run_command", command=f"git init -q sub; cd sub; sh ../setup.sh . {payload}")
    assert (folder / "sub/new.txt").exists()
    payload.unlink(missing_ok=True)
    assert not done(box, name, **arguments).is_error
    assert not done(box, name, path="sub", **arguments).is_error
    assert not payload.exists()


def test_a_search_says_where_and_ends(box: BuiltIn, folder: Path) -> None:
    assert (
        done(box, "search_folder", pattern="return", path="src").text
        == "src/add.py:2: return a - b"
    )
    assert done(box, "search_folder", pattern="return", path="src/add.py").text.endswith("a - b")
    assert done(box, "search_folder", pattern="nowhere").text == "[nothing matches]"
    assert "regular expression" in done(box, "search_folder", pattern="(").text
    (folder / "many").write_text("match\n" * 500)
    lines = done(box, "search_folder", pattern="match").text.splitlines()
    assert len(lines) == 61
    assert "more than 60" in lines[-1]


def test_a_pattern_that_takes_for_ever_can_be_stopped(box: BuiltIn, folder: Path) -> None:
    (folder / "evil").write_text("a" * 60 + "!\n")
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    result = box.call(called("search_folder", pattern="(a+)+$"), stop)
    assert "stopped by the user" in result.text


def test_a_change_is_shown_as_a_diff_and_made(box: BuiltIn, folder: Path) -> None:
    call = called("edit_file", path="src/add.py", old="a - b", new="a + b")
    proposal = box.propose(call)
    assert "-    return a - b\n+    return a + b\n" in proposal.preview
    assert (folder / "src/add.py").read_text().count("a - b") == 1, "a proposal changes nothing"
    assert not box.call(call, threading.Event()).is_error
    assert (folder / "src/add.py").read_text() == "def add(a, b):\n    return a + b\n"


def test_a_new_file_is_shown_whole(box: BuiltIn, folder: Path) -> None:
    call = called("write_file", path="new/deep/a.txt", content="one\n")
    assert box.propose(call).preview == "--- /dev/null\n+++ b/new/deep/a.txt\n@@ -0,0 +1 @@\n+one\n"
    assert not (folder / "new").exists()
    assert box.call(call, threading.Event()).text == "new/deep/a.txt is new"
    assert (folder / "new/deep/a.txt").read_text() == "one\n"


@pytest.mark.parametrize(("old", "count"), [("nowhere", 0), ("a", 3), ("", 0)])
def test_what_does_not_stand_there_once_is_not_replaced(
    box: BuiltIn, folder: Path, old: str, count: int
) -> None:
    (folder / "aaa").write_text("a a a")
    result = done(box, "edit_file", path="aaa", old=old, new="b")
    assert f"{count} times" in result.text
    assert (folder / "aaa").read_text() == "a a a"


def test_a_file_that_changed_after_the_question_is_left_alone(box: BuiltIn, folder: Path) -> None:
    for name, more in (
        ("edit_file", {"old": "By", "new": "With"}),
        ("write_file", {"content": "x"}),
    ):
        call = called(name, path="readme.md", **more)
        box.propose(call)
        (folder / "readme.md").write_text(f"By somebody else, {name}\n")
        assert "changed since" in box.call(call, threading.Event()).text
        assert "somebody else" in (folder / "readme.md").read_text()


def test_a_command_runs_in_the_folder(box: BuiltIn, folder: Path) -> None:
    proposal = box.propose(called("run_command", command="ls src\nrm x"))
    assert (proposal.subject, proposal.summary) == ("ls src\nrm x", "run ls src ⏎ rm x")
    assert "confined" in proposal.preview
    assert done(box, "run_command", command="ls src").text == "add.py\n[exit code 0]"
    assert done(box, "run_command", command="exit 2").is_error


def test_what_a_summary_says_a_terminal_does_not_obey(box: BuiltIn) -> None:
    proposal = box.propose(called("run_command", command="echo \x1b[8m; rm -rf . \u202e"))
    assert proposal.summary.isprintable()
    assert "rm -rf" in proposal.summary
