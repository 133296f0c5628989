"""Tags: added, removed, searched together with words, and gone with their conversation."""

from pathlib import Path

import pytest

from localspec.errors import UsageError
from localspec.history.archive import History
from localspec.history.records import split_query, tags_of
from localspec.messages import Message


def named(history: History, text: str) -> int:
    number = history.create()
    history.add_user(number, None, Message.user(text))
    return number


def found(history: History, query: str) -> set[int]:
    return {each.id for each in history.conversations(query)}


def test_tags_narrow_a_search_and_go_with_their_conversation(tmp_path: Path) -> None:
    history = History(tmp_path / "history")
    rivers, lakes, hills = (
        named(history, f"about {each}") for each in ("rivers", "lakes", "hills")
    )
    assert history.tag(rivers, ["water", "europe"]) == ["europe", "water"]
    assert history.tag(lakes, ["water"]) == ["water"]
    assert history.tag(lakes, ["water"]) == ["water"], "twice is once"
    assert found(history, "tag:water") == {rivers, lakes}
    assert found(history, "#water tag:europe") == {rivers}
    assert found(history, "lakes tag:Water") == {lakes}
    assert found(history, "hills tag:water") == set()
    assert found(history, "about") == {rivers, lakes, hills}
    assert history.conversation(rivers).tags == ("europe", "water")
    assert history.tag(rivers, [], ["europe"]) == ["water"]
    history.delete(rivers)
    assert found(history, "tag:water") == {lakes}
    history.close()
    again = History(tmp_path / "history")
    assert again.conversation(lakes).tags == ("water",)


def test_words_that_are_no_tags_are_words() -> None:
    assert split_query("tag:a the #b c#d #") == ("the c#d #", ["a", "b"])
    assert split_query("plain  words") == ("plain  words", [])


def test_what_is_typed_adds_and_removes() -> None:
    assert tags_of("work, -old #New") == (["work", "new"], ["old"])
    for wrong in ("a/b", "12", "x" * 41, "-"):
        with pytest.raises(UsageError, match="is no tag"):
            tags_of(wrong)
