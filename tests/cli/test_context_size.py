"""How large a context `run` takes for a prompt."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from localspec.chat.request import Request
from localspec.chat.tokenizer import guessed_context, may_need_more
from localspec.messages import Message
from localspec.options import ReplyOptions
from tests.cli.command import PLAIN, environment

# The program with a usual context of 512 tokens, so that prompts are soon long.
SMALL = """
import localspec.options.load
localspec.options.load.USUAL_N_CTX = 512
from localspec.__main__ import main
main()
"""
ENGLISH = "The river was wide, and nobody had ever crossed it at night. "


def prompt(text: str, max_tokens: int | None = None) -> Request:
    return Request(0, (Message.user(text),), ReplyOptions(max_tokens=max_tokens))


def test_a_guess_is_rather_too_large() -> None:
    for text, tokens in [
        (ENGLISH * 100, 1300),
        ("1234567890," * 400, 4400),
        ("川は広かった。" * 100, 700),
    ]:
        assert tokens + 100 <= guessed_context(prompt(text, 100)) <= 2 * tokens + 500
    empty = guessed_context(prompt(""))
    assert empty - guessed_context(prompt("", 48)) == 2000
    assert guessed_context(prompt(""), tools=True) - empty == 4096
    for chars, most, may in ((1700, None, False), (2000, None, True), (4000, 8, True)):
        assert may_need_more(prompt("x" * chars, most), 4096) is may


@pytest.mark.slow
def test_a_long_prompt_is_answered_as_with_a_context_that_is_large_enough(
    six_layers_path: Path,
) -> None:
    """A guess by characters is too small here: it is counted."""
    text = "zq xj " * 150
    usual = ("--json", "--seed", "1", "-n", "4", "--draft", "off", *PLAIN)
    words = ("run", "--target", str(six_layers_path), *usual, "-")
    answers = []
    for flags in ((), ("--ctx", "2048")):
        program = [sys.executable, "-c", SMALL, *words, *flags]
        done = subprocess.run(
            program, input=text, env=environment(), capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        document = json.loads(done.stdout)
        tokens = document["usage"]["prompt_tokens"]
        assert tokens > 512
        assert guessed_context(prompt(text, 4)) < tokens
        answers.append((document["text"], document["usage"]))
    assert answers[0] == answers[1]
