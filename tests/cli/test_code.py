"""`localspec run --code`: code and nothing else."""

import pytest
from click.testing import CliRunner

from localspec.cli.main import localspec
from localspec.cli.output import print_code
from localspec.display import code_blocks
from localspec.errors import UsageError
from tests.cli.command import PLAIN
from tests.cli.command import localspec as command

ANSWER = "Here:\n\n```python\nx = 1\n```\n\nor\n\n~~~\ny = 2\n~~~\nDone."


def test_blocks_are_what_stands_between_fences() -> None:
    assert code_blocks(ANSWER) == [("python", "x = 1"), ("", "y = 2")]
    assert code_blocks("```\ncut o") == [("", "cut o")]
    assert code_blocks("no code") == []


def test_the_tags_of_an_attached_file_are_no_code() -> None:
    assert code_blocks('```python\n<file name="a.py">\nx = 1\n</file>\n```') == [
        ("python", "x = 1")
    ]
    assert code_blocks('```python\n<file name="a.py">\nx = 1\n```') == [("python", "x = 1")]
    assert code_blocks("```html\n<p>\n</file>x\n```") == [("html", "<p>\n</file>x")]


def test_only_code_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    print_code(ANSWER.replace("~~~\ny", "~~~Python title=b.py\ny"), quiet=False)
    assert capsys.readouterr() == ("x = 1\n\ny = 2\n", "")


@pytest.mark.parametrize("quiet", [False, True])
def test_blocks_in_another_language_than_the_first_are_left_out(
    quiet: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    print_code(
        "```go\npackage main\n```\nRun it:\n\n```sh\ngo run .\n```\n\n```\n1\n2\nFizz\n```",
        quiet=quiet,
    )
    out, err = capsys.readouterr()
    assert out == "package main\n"
    assert ("printing 1 of 3 blocks of code" in err) is not quiet


@pytest.mark.parametrize("quiet", [False, True])
def test_an_answer_without_fences_is_printed_and_said_to_have_none(
    quiet: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    print_code("x = 1", quiet=quiet)
    out, err = capsys.readouterr()
    assert out == "x = 1\n"
    assert ("no block of code" in err) is not quiet


@pytest.mark.parametrize("other", ["--json", "--show-thinking"])
def test_it_excludes_what_prints_more(other: str) -> None:
    with pytest.raises(UsageError, match="--code prints nothing else"):
        CliRunner().invoke(localspec, ["run", "Hi", "--code", other], catch_exceptions=False)


@pytest.mark.weights
def test_code_that_was_cut_off_is_printed_and_has_a_code_of_its_own(smollm2_path: object) -> None:
    words = ("run", "demo", *PLAIN, "--code", "Write a long Python program.")
    done = command(*words, "-n", "12")
    assert done.code == 6
    assert done.out
    assert done.err.endswith("localspec: the answer is incomplete: cut off at --max-tokens\n")
    whole = command(*words, "--regex", "```\nx = 1\n```")
    assert (whole.code, whole.out) == (0, "x = 1\n")
