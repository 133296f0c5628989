"""What each verb imports before it can do anything: so many modules of ours, and of the slow libraries only these."""

import subprocess
import sys

import pytest

SLOW = {
    "asyncio",
    "huggingface_hub",
    "httpx",
    "jinja2",
    "llama_cpp",
    "llguidance",
    "markdown_it",
    "multiprocessing",
    "numpy",
    "pip",
    "platformdirs",
    "pygments",
    "rich",
    "sqlite3",
    "ssl",
    "textual",
}

_COMMAND = """
import sys
sys.argv = ["localspec", *{words!r}]
from localspec.__main__ import main
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""
_PAINTED = """
import sys, localspec.__main__, localspec.cli.root, localspec.ui.opening
print(*sys.modules, file=sys.stderr)
"""
_FIRST_FRAME = """
import sys, localspec.__main__, localspec.cli, localspec.cli.chat, localspec.ui.app
print(*sys.modules, file=sys.stderr)
"""
_ENGINE = "import sys, localspec.launch.child; print(*sys.modules, file=sys.stderr)"


def script(*words: str) -> str:
    return _COMMAND.format(words=list(words))


# Flags are derived from the options' own declarations, ten small modules that import the standard library alone.
# Names of models are read in other programs' spelling, words are told from models, and names are completed: small
# modules, and `config` writes, too.
# The list of verbs, which `--help` shows without click, and the root of all commands are two modules.
# What a template reads of tools, how a call looks where a template writes none, and the rules of a conversation's calls are three.
# Texts for a terminal are made printable in one module, which errors need, too.
# What a chat knows of tools before one is used is nine modules.
# What `run` shows while it reads a long prompt is a module.
# What runs, how many modules of ours at most, and which slow libraries. Lower a number when it falls; a higher one
# needs a reason.
MODEL_LIBRARIES = {"jinja2", "llama_cpp", "multiprocessing", "numpy", "platformdirs", "sqlite3"}
BUDGET: dict[str, tuple[str, int, set[str]]] = {
    "--help": (script("--help"), 5, set()),
    # What loads models comes only where no server has them in memory.
    "run --help": (script("run", "--help"), 72, {"platformdirs"}),
    "batch --help": (script("batch", "--help"), 174, MODEL_LIBRARIES),
    "stats --help": (script("stats", "--help"), 11, {"platformdirs"}),
    "bench --help": (script("bench", "--help"), 155, MODEL_LIBRARIES),
    "pull --help": (script("pull", "--help"), 50, {"numpy", "platformdirs"}),
    "list --help": (script("list", "--help"), 35, {"numpy", "platformdirs"}),
    "pair --help": (script("pair", "--help"), 35, {"numpy", "platformdirs"}),
    "config --help": (script("config", "--help"), 28, {"platformdirs"}),
    "doctor --help": (script("doctor", "--help"), 77, {*MODEL_LIBRARIES, "ssl"}),
    "chat --help": (script("chat", "--help"), 87, {"platformdirs", "sqlite3"}),
    "chat is painted": (_PAINTED, 15, {"platformdirs"}),
    "first frame of chat": (
        _FIRST_FRAME,
        111,
        {"asyncio", "platformdirs", "rich", "sqlite3", "ssl", "textual"},
    ),
    "engine's process": (_ENGINE, 145, MODEL_LIBRARIES),
}


def imported(code: str) -> tuple[set[str], set[str]]:
    """Return our modules and the slow libraries that a script has imported when it ends."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = set(done.stderr.split())
    ours = {each for each in names if each.split(".")[0] == "localspec"}
    return ours, SLOW & names


@pytest.mark.first(5)
@pytest.mark.parametrize("what", BUDGET)
def test_no_more_is_imported_than_its_budget(what: str) -> None:
    code, most, slow = BUDGET[what]
    ours, libraries = imported(code)
    assert "localspec.__main__" in ours or "localspec.launch.child" in ours
    assert libraries - slow == set()
    assert len(ours) <= most, sorted(ours)


def test_a_slow_library_is_seen() -> None:
    code = "import sys, numpy, localspec.launch.child; print(*sys.modules, file=sys.stderr)"
    ours, libraries = imported(code)
    assert "numpy" in libraries
    assert ours
