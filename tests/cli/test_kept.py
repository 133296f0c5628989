"""What `run` keeps, and how it goes on."""

from pathlib import Path

import pytest

from localspec.cli.kept import Kept, continued
from localspec.errors import HistoryError, UsageError
from localspec.history.archive import History
from localspec.messages import Message
from localspec.options import LaunchOptions
from tests.ui.answers import finished


def test_a_question_and_its_answer_go_on_in_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path))
    with pytest.raises(
        UsageError, match=r"no conversation to continue yet: ask without -c \(--continue\)"
    ):
        continued("", ("Hi",))
    first = Kept()
    assert first.model == ""
    said = first.say(Message.user("Name a river."), "Be brief.")
    assert [each.role for each in said] == ["system", "user"]
    assert first.number == 1
    first.answer([finished(text="The Douro.").reply], "toy-1b", LaunchOptions())
    second = Kept(1)
    assert second.model == "smollm2-135m"
    said = second.say(Message.user("And another?"), None)
    assert [each.text for each in said] == [
        "Be brief.",
        "Name a river.",
        "The Douro.",
        "And another?",
    ]
    second.answer([finished(text="The Tejo.").reply], "toy-1b", LaunchOptions(target="own.gguf"))
    history = History(tmp_path / "history")
    (stored,) = history.conversations()
    assert (stored.title, stored.pair, stored.n_messages) == ("Name a river.", "own.gguf", 4)
    history.close()


@pytest.fixture
def rivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four conversations, the last of which has the title of the first."""
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path))
    history = History(tmp_path / "history")
    for title in ("durations", "durations of rivers", "the sea", "durations"):
        history.add_user(history.create(), None, Message.user(title))
    history.close()


@pytest.mark.usefixtures("rivers")
@pytest.mark.parametrize(
    ("name", "words", "number", "left"),
    [
        ("", ("And in French?",), 4, ("And in French?",)),
        ("And in French?", (), 4, ("And in French?",)),
        ("And in French?", ("smollm2-135m",), 4, ("smollm2-135m", "And in French?")),
        ("smollm2-135m", ("And in French?",), 4, ("smollm2-135m", "And in French?")),
        ("2", ("And in French?",), 2, ("And in French?",)),
        ("#2", (), 2, ()),
        ("durations", ("smollm2-135m", "Why?"), 4, ("smollm2-135m", "Why?")),
        ("durations of", ("Why?",), 2, ("Why?",)),
        ("the", ("Why?",), 3, ("Why?",)),
        ("durations", (), 4, ("durations",)),
    ],
)
def test_what_stands_behind_continue_is_a_number_a_title_or_the_prompt(
    name: str, words: tuple[str, ...], number: int, left: tuple[str, ...]
) -> None:
    conversation, found = continued(name, words)
    assert (conversation.id, found) == (number, left)


@pytest.mark.usefixtures("rivers")
def test_a_conversation_that_cannot_be_named_so_is_one_line() -> None:
    with pytest.raises(UsageError, match="there is no conversation 'ocean': `localspec history`"):
        continued("ocean", ("Why?",))
    with pytest.raises(UsageError, match="put quotes around a prompt of several words"):
        continued("why", ("is", "the", "sky", "blue"))
    with pytest.raises(
        UsageError, match=r"'dura' begins several titles: give the number of 4 'dur"
    ):
        continued("dura", ("Why?",))
    for number in ("99", "9" * 30, "9" * 5000):
        with pytest.raises(HistoryError, match=f"there is no conversation {number[:1000]}"):
            continued(number, ("Why?",))


@pytest.mark.usefixtures("rivers")
def test_what_goes_on_is_said() -> None:
    assert Kept(2).continuing == "continuing 2, 'durations of rivers'"
