"""What the student reads and refuses before it needs torch, and the bounds of its package."""

import ast
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from localspec_student import __main__ as command

from localspec.cli.main import main
from localspec.storage.locks import try_lock

ROOT = Path(__file__).parents[2]
MOST_LINES = 700


def code_lines(path: Path) -> int:
    """Return the lines of a module that are neither empty, comment nor docstring."""
    text, prose = path.read_text(), set[int]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            prose |= {*range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)}
    lines = enumerate(text.splitlines(), 1)
    return sum(n not in prose and line.strip()[:1] not in {"", "#"} for n, line in lines)


def test_the_package_is_small_and_nothing_of_localspec_needs_it() -> None:
    assert sum(map(code_lines, (ROOT / "student").rglob("*.py"))) <= MOST_LINES
    modules = (ROOT / "localspec").rglob("*.py")
    assert not [each for each in modules if "localspec_student" in each.read_text()]


@pytest.mark.parametrize("words", ["--tokens 0", "--depths 0", "--rate -1", "--hidden -1"])
def test_a_recipe_refuses_what_cannot_be(words: str) -> None:
    done = CliRunner().invoke(command.student, ["make", "smollm2-135m", *words.split()])
    assert done.exit_code == 2
    assert words.split(maxsplit=1)[0] in done.output


def test_forget_deletes_what_its_model_has_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    names = ["smollm2-135m@0", "smollm2-360m@0", "gone@0", "gone@1"]
    folders = [tmp_path / "data" / "student" / name for name in names]
    for folder in (*folders, tmp_path / "outside" / "me@0"):
        folder.mkdir(parents=True)
        (folder / "head.pt").write_bytes(b"x")

    def forget(*name: str) -> tuple[str, list[str]]:
        done = CliRunner().invoke(command.student, ["forget", *name])
        return done.output or str(done.exception), [each.name for each in folders if each.exists()]

    for name in ("../../outside/me", "*", "smollm2", "smollm2-135m@0", ""):
        said, left = forget(name)
        assert ("nothing was collected" in said, left) == (True, names), name
    lock = try_lock(folders[0])
    assert lock is not None
    said, left = forget("smollm2-135m")
    assert ("wait for it" in said, left) == (True, names)
    os.close(lock)
    assert forget("smollm2:135m") == ("deleted 0 MB, folders: 1\n", names[1:])
    assert forget("gone") == ("deleted 0 MB, folders: 2\n", names[1:2])
    assert forget()[1] == []
    assert "nothing was collected" in forget("gone")[0]
    assert (tmp_path / "outside" / "me@0" / "head.pt").exists()


def test_help_needs_no_torch_and_making_says_that_it_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--depths N" in CliRunner().invoke(command.student, ["make", "--help"]).output
    monkeypatch.setattr(command, "find_spec", lambda _: None)
    monkeypatch.setattr("sys.argv", ["localspec-student", "make", "smollm2-135m"])
    assert main(command.student) == 2
    complaint = capsys.readouterr().err
    assert complaint.count("\n") == 1
    assert "pip install torch" in complaint
