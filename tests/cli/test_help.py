import subprocess
import sys

import pytest
from click.testing import CliRunner

from localspec import cli
from tests.cli.command import localspec

SLOW = {"llama_cpp", "textual", "huggingface_hub", "numpy", "jinja2", "pip"}
LIST_IMPORTS = """
import sys
from localspec.cli import main
sys.argv = ["localspec", "--help"]
try:
    main()
finally:
    print(*{name.partition(".")[0] for name in sys.modules}, file=sys.stderr)
"""


def test_help_imports_nothing_slow() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIST_IMPORTS], capture_output=True, text=True, check=True
    )
    imported = set(done.stderr.split())
    assert "click" in imported
    assert imported & SLOW == set()
    assert "Answer a prompt." in done.stdout


def test_every_verb_has_help_of_its_own() -> None:
    for verb in ("run", "pull", "import"):
        done = localspec(verb, "--help", cold=True)
        assert (done.code, done.err) == (0, "")
        assert f"Usage: python -m localspec {verb} [OPTIONS]" in done.out


@pytest.mark.parametrize(
    ("verb", "meant"),
    [
        ("pul", "did you mean pull?"),
        ("download", "did you mean pull?"),
        ("telemtry", "did you mean telemetry?"),
        ("Why is the sky blue?", "to ask something, use `localspec run`"),
        ("xyzzy", "there is no command 'xyzzy'\n"),
    ],
)
def test_what_is_no_command_is_answered_with_what_is_meant(verb: str, meant: str) -> None:
    done = CliRunner().invoke(cli.localspec, [verb])
    assert done.exit_code == 2
    assert meant in done.output


@pytest.mark.parametrize(("verb", "page"), [("ls", "List the models on this"), ("ab", "5 or more")])
def test_help_takes_a_command_by_any_of_its_names(verb: str, page: str) -> None:
    assert page in " ".join(CliRunner().invoke(cli.localspec, ["help", verb]).output.split())


def test_no_verb_shows_the_help_and_is_code_2() -> None:
    done = localspec()
    assert (done.code, done.out) == (2, "")
    assert "Download models and verify them" in done.err
