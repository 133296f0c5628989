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
    for chars, most, may in ((1700, None, False), (2000, None, True), (4000, 8, True)):
        assert may_need_more("x" * chars, most, 4096) is may


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.usefixtures("smollm2_path")
@pytest.mark.parametrize(
    ("prompt", "others"), [("1234567890," * 376, []), ("zq xj " * 1030, [("--ctx", "8192")])]
)
def test_a_long_prompt_is_answered_as_with_a_context_that_is_large_enough(
    prompt: str, others: list[tuple[str, ...]]
) -> None:
    """Of the second one, a guess by characters is too small: it is loaded again."""
    words = ("run", "demo", "--json", "--seed", "1", "-n", "4", "--draft", "off", "-")
    texts = set()
    for flags in ((), *others):
        done = localspec(*words, *flags, stdin=prompt.encode(), timeout_s=400)
        assert (done.code, done.err) == (0, "")
        document = json.loads(done.out)
        assert 4096 < document["usage"]["prompt_tokens"] < 4200
        assert document["usage"]["completion_tokens"] == 4
        texts.add(document["text"])
    assert len(texts) == 1
