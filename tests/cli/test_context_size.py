"""How large a context `run` takes for a prompt."""

import json

import pytest

from localspec.launch.local_engine import guessed_context, may_need_more
from tests.cli.command import localspec

ENGLISH = "The river was wide, and nobody had ever crossed it at night. "


@pytest.mark.parametrize(
    ("text", "tokens"),
    [(ENGLISH * 100, 1300), ("1234567890," * 400, 4400), ("川は広かった。" * 100, 700)],
)
def test_a_guess_is_rather_too_large(text: str, tokens: int) -> None:
    assert tokens + 100 <= guessed_context(text, 100) <= 2 * tokens + 500


def test_an_answer_of_no_given_length_and_tools_have_room_of_their_own() -> None:
    assert guessed_context("", None) - guessed_context("", 48) == 2000
    assert guessed_context("", None, tools=True) - guessed_context("", None) == 4096


def test_a_short_prompt_is_not_counted() -> None:
    assert not may_need_more("x" * 1700, None, 4096)
    assert may_need_more("x" * 2000, None, 4096)
    assert may_need_more("x" * 4000, 8, 4096)


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.parametrize(
    "prompt", ["1234567890," * 420, "zq xj " * 1100], ids=["guessed", "counted"]
)
def test_a_long_prompt_is_answered_as_with_a_context_that_is_large_enough(
    smollm2_path: object, prompt: str
) -> None:
    """Of the second one, a guess by characters is too small: it is loaded again."""
    words = ("run", "demo", "--json", "--seed", "1", "-n", "8", "--draft", "off", "-")
    done, wide = (
        localspec(*words, *more, stdin=prompt.encode()) for more in ((), ("--ctx", "8192"))
    )
    assert (done.code, done.err) == (0, "")
    document = json.loads(done.out)
    assert document["usage"]["prompt_tokens"] > 4096
    assert document["text"] == json.loads(wide.out)["text"]
    assert document["usage"] == json.loads(wide.out)["usage"]
