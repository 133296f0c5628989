"""A feature's room can be taken away, and `run` and the plain chat answer without it."""

import subprocess
import sys
from functools import cache, partial

import pytest

from tests.cli.test_chat import own_history

__all__ = ["own_history"]
pytestmark = [pytest.mark.weights, pytest.mark.slow, pytest.mark.usefixtures("own_history")]

# Refuses to import a room, as if its folder were not there.
WITHOUT = """
import importlib.abc, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if f"{name}.".startswith(f"localspec.{room}."):
            raise ModuleNotFoundError(f"{name} was taken away", name=name)

room, *words = sys.argv[1:]
sys.meta_path.insert(0, Missing())
sys.argv = ["localspec", *words]
from localspec.__main__ import main
raise SystemExit(main())
"""
ALONE = ("gates", "batch")


def answer(room: str, *words: str) -> str:
    options = ("-n", "5", "--draft", "off", "--temperature", "0")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, room, *words, *options],
        input="Say hello.",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "taken away" not in done.stderr
    return done.stdout


RUN, CHAT = ("run", "smollm2-135m", "Say hello."), ("chat", "smollm2-135m", "--plain")
usual = cache(partial(answer, "none"))


@pytest.mark.parametrize("room", [*ALONE, "history", "retrieval", "telemetry", "toolbox", "tui"])
def test_run_answers_without_a_feature(room: str) -> None:
    assert answer(room, *RUN) == usual(*RUN) != ""


@pytest.mark.parametrize("room", [*ALONE, "retrieval", "telemetry", "toolbox"])
def test_the_plain_chat_answers_without_a_feature(room: str) -> None:
    assert answer(room, *CHAT) == usual(*CHAT) != ""
