import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localspec.messages import ToolCall, ToolResult
from localspec.storage.tree import list_files
from localspec.toolbox import search as searching
from localspec.toolbox.built_in import BuiltIn
from localspec.toolbox.folder import Folder
from localspec.toolbox.rules import Rule, Rules
from localspec.toolbox.toolbox import Access
from tests.support.watched_git import watched_git
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.process
RULES = Rules(deny=(Rule("*", ".env"), Rule("read_file", "private")))
ACCESS = {"read_file": Access.READ, "list_folder": Access.READ, "search_folder": Access.READ}
ACCESS |= {"write_file": Access.WRITE, "edit_file": Access.WRITE, "run_command": Access.RUN}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in {
        "src/add.py": "def add(a, b):\n    return a - b\n", "readme.md": "# Adds\nBy add.\n",
        ".env": "KEY=hidden\n", "private/note": "hidden add\n",
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
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


def test_tools_name_their_arguments_and_access(box: BuiltIn) -> None:
    assert {each.name: box.propose(called(each.name)).access for each in box.tools} == ACCESS
    for each in box.tools:
        assert set(each.parameters["required"]) <= set(each.parameters["properties"])


def test_a_file_is_read_whole_or_by_lines(box: BuiltIn, folder: Path) -> None:
    (folder / "long").write_text("".join(f"line {n}\n" for n in range(1, 1001)))
    (folder / "wide").write_text("x" * 500_000)
    for arguments, text in (
        ({}, "# Adds\nBy add."),
        ({"first_line": None, "last_line": None}, "# Adds\nBy add."),
        ({"first_line": 2}, "By add.\n[lines 2 to 2 of 2]"),
    ):
        assert done(box, "read_file", path="readme.md", **arguments).text == text
    assert done(box, "read_file", path="long").text.endswith("line 400\n[lines 1 to 400 of 1000]")
    assert len(done(box, "read_file", path="wide").text) < 17_000


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"path": "none"}, "no file"), ({"path": "../x"}, "outside"), ({"path": "/etc/passwd"}, "outside"),
        ({"path": "a\0b"}, "NUL"), ({"path": "\ud800"}, "half of a character"),
        ({"path": ".env"}, "rules"), ({"path": "x/../.env"}, "rules"), ({"path": "./.env"}, "rules"),
        ({"path": 3}, "`str`"), ({}, "missing"), ({"path": None}, "`str`"),
        ({"path": "readme.md", "mode": "r"}, "unknown field `mode`"),
        ({"path": "readme.md", "first_line": 9}, "2 lines"), ({"path": "readme.md", "first_line": True}, "`int`"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_an_error(box: BuiltIn, arguments: Any, word: str) -> None:
    result = done(box, "read_file", **arguments)
    assert result.is_error
    assert word in result.text


def test_arguments_that_are_no_json_are_an_error(box: BuiltIn) -> None:
    for text in ("{", "[]", "3", "[" * 100_000):
        assert "JSON" in str(box.propose(ToolCall("c", "read_file", text)).error)
        assert box.call(ToolCall("c", "read_file", text), threading.Event()).is_error


def test_links_are_followed_and_not_swapped_after_the_question(box: BuiltIn, folder: Path) -> None:
    (folder / "harmless").symlink_to(".env")
    assert "rules" in done(box, "read_file", path="harmless").text
    (folder / "link").symlink_to("readme.md")
    call = called("write_file", path="link", content="new\n")
    assert box.propose(call).subject == "readme.md"
    (folder / "link").unlink()
    (folder / "link").symlink_to("src/add.py")
    result = box.call(call, threading.Event())
    assert result.is_error
    assert "changed since" in result.text
    assert (folder / "src/add.py").read_text().startswith("def add")


def test_listing_and_searching_leave_out_what_git_ignores_and_what_is_hidden(
    box: BuiltIn, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_files, "__defaults__", (20_000, PATIENCE_S))
    subprocess.run(["git", "init", "-q", folder], check=True)
    (folder / ".gitignore").write_text("*.log\nbuild/\n")
    for name in ("x.log", "build/y", ".github/ci.yml"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("add: 1\n")
    assert done(box, "list_folder").text.splitlines() == ["private/", "readme.md", "src/"]
    for path, text in (("src", "add.py"), ("./src/", "add.py"), (".github", "ci.yml")):
        assert done(box, "list_folder", path=path).text == text
    found = done(box, "search_folder", pattern="add|hidden").text
    assert "src/add.py:1: def add(a, b):" in found
    assert not any(word in found for word in ("log", "hidden", "build", ".github"))
    found = done(box, "search_folder", pattern="add", path=".github").text
    assert found == ".github/ci.yml:1: add: 1"
    for path in ("none", ".."):
        assert done(box, "list_folder", path=path).is_error


@pytest.mark.parametrize(
    ("name", "arguments"), [("list_folder", {}), ("search_folder", {"pattern": "n"})]
)
def test_git_is_not_started_by_reading(
    box: BuiltIn,
    folder: Path,
    name: str,
    arguments: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor could it be trusted: a confined command may write into `.git`."""
    done(box, "run_command", command="git init -q sub; echo n > sub/new.txt")
    assert (folder / "sub/new.txt").exists()
    path, note = watched_git(folder / "private")
    monkeypatch.setenv("PATH", path)
    assert not done(box, name, **arguments).is_error
    assert not done(box, name, path="sub", **arguments).is_error
    assert not note.exists()


def test_a_search_names_places_and_ends(box: BuiltIn, folder: Path) -> None:
    (folder / "many").write_text("match\n" * 500)
    found = done(box, "search_folder", pattern="return", path="src").text
    assert found == "src/add.py:2: return a - b"
    assert done(box, "search_folder", pattern="return", path="src/add.py").text == found
    assert done(box, "search_folder", pattern="nowhere").text == "[nothing matches]"
    assert "regular expression" in done(box, "search_folder", pattern="(").text
    lines = done(box, "search_folder", pattern="match").text.splitlines()
    assert len(lines) == 61
    assert "more than 60" in lines[-1]


def test_a_search_that_is_stopped_or_takes_too_long_says_so(
    box: BuiltIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In the place of its process stands one that sleeps."""
    sleeper = tmp_path / "sleeper.py"
    sleeper.write_text("import time; time.sleep(600)")
    monkeypatch.setattr(searching, "__file__", str(sleeper))
    stop = threading.Event()
    stop.set()
    assert "stopped by the user" in box.call(called("search_folder", pattern="add"), stop).text
    monkeypatch.setattr(searching, "_MOST_S", 0.2)
    assert "stopped after 0.2 s" in done(box, "search_folder", pattern="add").text


def test_a_change_is_proposed_as_a_diff_and_then_made(box: BuiltIn, folder: Path) -> None:
    call = called("edit_file", path="src/add.py", old="a - b", new="a + b")
    assert "-    return a - b\n+    return a + b\n" in box.propose(call).preview
    assert (folder / "src/add.py").read_text().count("a - b") == 1, "a proposal changes nothing"
    assert not box.call(call, threading.Event()).is_error
    assert (folder / "src/add.py").read_text() == "def add(a, b):\n    return a + b\n"
    call = called("write_file", path="new/deep/a.txt", content="one\n")
    assert box.propose(call).preview == "--- /dev/null\n+++ b/new/deep/a.txt\n@@ -0,0 +1 @@\n+one\n"
    assert not (folder / "new").exists()
    assert box.call(call, threading.Event()).text == "new/deep/a.txt is new"
    assert (folder / "new/deep/a.txt").read_text() == "one\n"


@pytest.mark.parametrize(
    ("content", "old", "new", "after"),
    [
        # What was read is replaced, whatever ends its lines; what is written ends as the file does.
        ("def f():\r\n    return s / 0\r\n", "def f():\n    return s / 0", "def f():\n    s = 1\n    return s", "def f():\r\n    s = 1\r\n    return s\r\n"),
        ("a\r\nb\r\nc\r\n", "b\n", "", "a\r\nc\r\n"),
        ("a\r\nb\r\nc", "b", "x\ny", "a\r\nx\r\ny\r\nc"),
        ("a\r\nb\r\n", "a\r\nb", "a\r\nc", "a\r\nc\r\n"),
        ("a\nb\n", "a\r\nb", "a\r\nc", "a\nc\n"),
        ("a\rb\rc\r", "a\nb", "a\nx\nb", "a\rx\rb\rc\r"),
        # Of two kinds of line ends each stays where it was.
        ("a\r\nb\nc\r\nd\n", "a\nb\nc", "a\nB\nc", "a\r\nB\nc\r\nd\n"),
        ("a\nb\nc\r\nd\r\ne\n", "c\nd", "c\nx\nd", "a\nb\nc\r\nx\r\nd\r\ne\n"),
        # No line ends, but of other programs: form feeds, U+2028, a carriage return within a line.
        ("int a;\n\f\nint b;\n", "\f\nint b", "\f\nint c", "int a;\n\f\nint c;\n"),
        ("a\u2028b\n", "a\u2028b", "a\u2028c", "a\u2028c\n"),
        ("a\rb\n\u0085\n", "a\rb", "a\rc", "a\rc\n\u0085\n"),
        ("\ufeffa\r\nb\r\n", "a\nb", "a\nc", "\ufeffa\r\nc\r\n"),
        ("a", "a", "a\nb", "a\nb"),
    ],
)  # fmt: skip
def test_a_file_keeps_its_line_ends(
    content: str, old: str, new: str, after: str, box: BuiltIn, folder: Path
) -> None:
    file = folder / "file"
    file.write_bytes(content.encode())
    assert not done(box, "edit_file", path="file", old=old, new=new).is_error
    assert file.read_bytes() == after.encode()


def test_a_file_that_is_written_anew_keeps_its_line_ends_and_its_mark(
    box: BuiltIn, folder: Path
) -> None:
    for before, content, after in (
        ("a\r\nb\r\n", "x\ny\n", "x\r\ny\r\n"),
        ("a\nb\n", "x\r\ny\r\n", "x\ny\n"),
        ("\ufeffa\r\n", "x\n", "\ufeffx\r\n"),
        ("", "x\r\ny\n", "x\r\ny\n"),
        ("a", "x\ny\n", "x\ny\n"),
    ):
        (folder / "file").write_bytes(before.encode())
        assert not done(box, "write_file", path="file", content=content).is_error
        assert (folder / "file").read_bytes() == after.encode()


@pytest.mark.parametrize(
    ("content", "number", "shown"),
    [
        ("int a;\n\f\nint b;\nint target;\n", 4, "int a;\n\f\nint b;\nint target;"),
        ("a\u2028b\v\u0085\x1c\ntarget\n", 2, "a\u2028b\v\u0085\x1c\ntarget"),
        ("a\rb\n\ntarget", 3, "a\rb\n\ntarget"),
        ("\ufeffa\r\n\r\ntarget\r\n", 3, "a\n\ntarget"),
        ("a\r\rtarget\r", 3, "a\n\ntarget"),
    ],
)
def test_lines_are_counted_as_everyone_counts_them(
    content: str, number: int, shown: str, box: BuiltIn, folder: Path
) -> None:
    (folder / "file").write_bytes(content.encode())
    assert done(box, "read_file", path="file").text == shown
    found = done(box, "search_folder", pattern="^[a-z ]*target;?$", path="file").text
    assert found.split(": ")[0] == f"file:{number}"
    part = done(box, "read_file", path="file", first_line=number).text
    assert part.split("\n")[0] in {"target", "int target;"}
    preview = box.propose(called("edit_file", path="file", old="target", new="goal")).preview
    head, removed = preview.split("\n")[2], [e for e in preview.split("\n") if e.startswith("-")]
    assert head.startswith("@@ -1,")
    assert len(preview.split("\n@@")[1].split("\n")) - 3 == number
    assert removed[1:] == [f"-{shown.split(chr(10))[number - 1]}"]
    assert not {"\r", "\u2028"} & {*preview}


def test_what_is_not_there_once_or_changed_is_left_alone(box: BuiltIn, folder: Path) -> None:
    (folder / "aaa").write_text("a a a")
    for old, count in (("nowhere", 0), ("a", 3), ("", 0)):
        assert f"{count} times" in done(box, "edit_file", path="aaa", old=old, new="b").text
    assert (folder / "aaa").read_text() == "a a a"
    changes = {"edit_file": {"old": "By", "new": "With"}, "write_file": {"content": "x"}}
    for name, more in changes.items():
        call = called(name, path="readme.md", **more)
        box.propose(call)
        (folder / "readme.md").write_text(f"By another, {name}\n")
        assert "changed since" in box.call(call, threading.Event()).text
        assert "another" in (folder / "readme.md").read_text()


def test_a_command_runs_in_the_folder_and_its_summary_is_printable(box: BuiltIn) -> None:
    proposal = box.propose(called("run_command", command="ls src\nrm x"))
    assert (proposal.subject, proposal.summary) == ("ls src\nrm x", "run ls src ⏎ rm x")
    assert "confined" in proposal.preview
    assert done(box, "run_command", command="ls src").text == "add.py\n[exit code 0]"
    assert done(box, "run_command", command="exit 2").is_error
    summary = box.propose(called("run_command", command="echo \x1b[8m; rm -rf . \u202e")).summary
    assert summary.isprintable()
    assert "rm -rf" in summary
