import subprocess
import sys

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
    for verb in ("run", "pull", "list", "show", "rm", "import"):
        done = localspec(verb, "--help", cold=True)
        assert (done.code, done.err) == (0, "")
        assert f"Usage: python -m localspec {verb} [OPTIONS]" in done.out


def test_no_verb_shows_the_help_and_is_code_2() -> None:
    done = localspec()
    assert (done.code, done.out) == (2, "")
    assert "Fetch pairs and models" in done.err
