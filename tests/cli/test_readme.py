"""The examples of the README and of docs/python.md do what is said of them."""

import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.cli.command import succeed

ROOT = Path(__file__).parents[2]
_CHECK = """
import runpy, sys
found = runpy.run_path(sys.argv[1])
assert found["mean"]([1, 2, 6]) == 3
assert found["median"]([4, 1, 3, 2]) == 2.5
assert found["median"]([3, 1, 2]) == 2
assert found["spread"]([1, 5, 3]) == 4
"""


def edit() -> list[str]:
    """Return the words of the README's example, up to where its output goes."""
    lines = (ROOT / "README.md").read_text().splitlines()
    (line,) = [each for each in lines if each.endswith("> fixed.py")]
    return shlex.split(line.removesuffix("> fixed.py"))[1:]


def fails(file: Path) -> bool:
    """Return whether the functions of a file are not all there and right."""
    return subprocess.run([sys.executable, "-c", _CHECK, str(file)], check=False).returncode != 0


def test_the_example_names_a_file_that_is_there_and_wrong() -> None:
    words = edit()
    assert fails(ROOT / words[words.index("-f") + 1])


@pytest.mark.pair
def test_the_edited_file_is_whole_and_right(qwen_target_path: Path, tmp_path: Path) -> None:
    done = succeed(*edit(), "--target", str(qwen_target_path), cwd=ROOT)
    (tmp_path / "fixed.py").write_text(done.out)
    assert not fails(tmp_path / "fixed.py")


def python_example(target: str) -> str:
    """Return what the first example of docs/python.md prints with a model."""
    example = (ROOT / "docs" / "python.md").read_text().split("\n\n")[1:3]
    code = textwrap.dedent("\n".join(example)).replace("qwen2.5-coder-1.5b", target)
    words = [sys.executable, "-c", code]
    return subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT).stdout


@pytest.mark.slow
def test_the_python_example_prints_an_answer_and_no_none(smollm2_path: Path) -> None:
    del smollm2_path
    out = python_example("smollm2-135m")
    assert out.endswith("drafted tokens accepted\n")
    assert "None of" not in out


@pytest.mark.pair
def test_the_python_example_drafts(qwen_target_path: Path) -> None:
    del qwen_target_path
    out = python_example("qwen2.5-coder-1.5b")
    assert "def median(" in out
    assert re.search(r"^[1-9]\d* of \d+ drafted tokens accepted$", out, re.MULTILINE)


def algorithm(files: str) -> str:
    """Return the README's algorithm as a program that prints how many tokens were compared."""
    code = (ROOT / "README.md").read_text().split("```python\n")[1].split("```")[0]
    return code.replace('pull("qwen2.5-coder-1.5b")', files) + "\nprint(len(drafted))\n"


@pytest.mark.slow
def test_the_algorithm_gives_the_same_text_with_a_draft_and_without(smollm2_path: Path) -> None:
    del smollm2_path
    words = [sys.executable, "-c", algorithm('pull("smollm2-135m") * 2')]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT)
    assert int(done.stdout) > 60


@pytest.mark.pair
def test_the_algorithm_as_it_is_printed(qwen_paths: tuple[Path, Path]) -> None:
    del qwen_paths
    words = [sys.executable, "-c", algorithm('pull("qwen2.5-coder-1.5b")')]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT)
    assert int(done.stdout) > 30
