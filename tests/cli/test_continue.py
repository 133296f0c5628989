"""Which conversation `run --continue` means, and what is left of the words."""

from pathlib import Path

import pytest

from localspec.cli.prompt import conversation_and_words
from localspec.errors import HistoryError, UsageError
from localspec.history.archive import History
from localspec.messages import Message


def test_without_conversations_there_is_none_to_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path))
    with pytest.raises(
        UsageError, match=r"no conversation to continue yet: ask without -c \(--continue\)"
    ):
        conversation_and_words("", ("Hi",))


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
    conversation, found = conversation_and_words(name, words)
    assert (conversation.id, found) == (number, left)


@pytest.mark.usefixtures("rivers")
def test_a_conversation_that_cannot_be_named_so_is_one_line() -> None:
    with pytest.raises(UsageError, match="there is no conversation 'ocean': `localspec history`"):
        conversation_and_words("ocean", ("Why?",))
    with pytest.raises(UsageError, match="put quotes around a prompt of several words"):
        conversation_and_words("why", ("is", "the", "sky", "blue"))
    with pytest.raises(
        UsageError, match=r"'dura' begins several titles: give the number of 4 'dur"
    ):
        conversation_and_words("dura", ("Why?",))
    for number in ("99", "9" * 30, "9" * 5000):
        listed = f"there is no conversation {number[:18]}.*: `localspec history` lists them"
        with pytest.raises(HistoryError, match=listed):
            conversation_and_words(number, ("Why?",))
