"""What each verb imports before it can do anything: so many modules of ours, and of the slow libraries only these."""

import subprocess
import sys
from functools import cache

import pytest

SLOW = {
    *("asyncio", "huggingface_hub", "httpx", "importlib.metadata", "jinja2", "llama_cpp"),
    *("llama_cpp.llama", "llguidance", "markdown_it", "multiprocessing", "numpy", "pip"),
    *("platformdirs", "pygments", "rich.console", "sqlite3", "ssl", "textual"),
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
_SCREENS = """
import sys, localspec.__main__, localspec.cli.chat_front, localspec.tui.app
print(*sys.modules, file=sys.stderr)
"""
_ENGINE = "import sys, localspec.launch.child; print(*sys.modules, file=sys.stderr)"


def script(*words: str) -> str:
    return _COMMAND.format(words=list(words))


MODEL_LIBRARIES = {"llama_cpp", "numpy", "platformdirs"}


LISTS, INDEXES = {"numpy", "platformdirs"}, {"numpy", "platformdirs", "sqlite3"}


SCREENS = {"asyncio", "platformdirs", "rich.console", "sqlite3", "ssl", "textual"}
# What runs, how many modules of ours at most, and which slow libraries. Lower a number when it falls; a higher one
# needs a reason. A verb's module imports all that the verb needs, so its help does, too; of `run` what a first token
# waits for, and of `chat` its flags. What decides what is loaded is seven small modules, and was one; the words of lists stand apart from what they list. Where verbs come from
# is a module for all, and each plug-in that has one; the names that plug-ins may import are another. The store of what was read is two, and so is what clients propose. What loads models comes only where no server has them in memory.
BUDGET: dict[str, tuple[str, int, set[str]]] = {
    "--help": (script("--help"), 14, set()),
    "run --help": (script("run", "--help"), 65, {"platformdirs"}),
    "batch --help": (script("batch", "--help"), 80, MODEL_LIBRARIES),
    "stats --help": (script("stats", "--help"), 47, {"platformdirs", "rich.console", "sqlite3"}),
    "bench --help": (script("bench", "--help"), 149, MODEL_LIBRARIES),
    "tailor --help": (script("tailor", "--help"), 156, MODEL_LIBRARIES),
    "pull --help": (script("pull", "--help"), 92, MODEL_LIBRARIES),
    "list --help": (script("list", "--help"), 75, LISTS),
    "check --help": (script("check", "--help"), 75, LISTS),
    "config --help": (script("config", "--help"), 37, {"platformdirs"}),
    "index --help": (script("index", "--help"), 72, INDEXES),
    "doctor --help": (script("doctor", "--help"), 114, MODEL_LIBRARIES | {"sqlite3"}),
    "chat --help": (script("chat", "--help"), 52, {"platformdirs"}),
    "screens of chat": (_SCREENS, 111, SCREENS),
    "engine's process": (_ENGINE, 142, MODEL_LIBRARIES),
}


@cache
def imported(code: str) -> tuple[set[str], set[str]]:
    """Return our modules and the slow libraries that a script has imported when it ends."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = set(done.stderr.split())
    ours = {each for each in names if each.split(".")[0] == "localspec"}
    return ours, SLOW & (names | {each.split(".")[0] for each in names})


@pytest.mark.parametrize("what", BUDGET)
def test_no_more_is_imported_than_its_budget(what: str) -> None:
    code, most, slow = BUDGET[what]
    ours, libraries = imported(code)
    assert "localspec.__main__" in ours or "localspec.launch.child" in ours
    assert libraries - slow == set()
    assert len(ours) <= most, sorted(ours)
    if what == "engine's process":  # what keeps what was said comes only where it is switched on
        absent = ("keeper", "token_log", "drafter")
        assert not ours & {f"localspec.plugins.store.{each}" for each in absent}


def test_a_slow_library_is_seen() -> None:
    code = "import sys, numpy, localspec.errors; print(*sys.modules, file=sys.stderr)"
    ours, libraries = imported(code)
    assert "numpy" in libraries
    assert ours
