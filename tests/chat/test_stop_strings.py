import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from localspec.chat.reply_text import StopStrings
from localspec.errors import UsageError
from tests.chat.cutting import cut

few_letters = st.text(alphabet="ab\n", max_size=30)
stop_lists = st.lists(st.text(alphabet="ab\n", min_size=1, max_size=5), max_size=4)


def before_first_stop(text: str, stops: list[str]) -> str:
    return text[: min((text.find(stop) for stop in stops if stop in text), default=len(text))]


@given(few_letters, stop_lists, st.data())
def test_any_cutting_gives_the_text_before_the_first_stop(
    text: str, stops: list[str], data: st.DataObject
) -> None:
    stream = StopStrings(stops)
    shown = "".join(stream.feed(chunk) for chunk in cut(data, text)) + stream.feed("", final=True)
    assert shown == before_first_stop(text, stops)
    assert stream.stopped == any(stop in text for stop in stops)


@given(few_letters, stop_lists)
def test_only_a_possible_beginning_of_a_stop_is_held_back(text: str, stops: list[str]) -> None:
    stream = StopStrings(stops)
    emitted = ""
    for end, letter in enumerate(text, start=1):
        emitted += stream.feed(letter)
        if stream.stopped:
            break
        held = text[len(emitted) : end]
        assert not held or any(stop.startswith(held) or stop in held for stop in stops)


def test_a_stop_string_may_span_feeds() -> None:
    stream = StopStrings(["\nUser:"])
    assert (stream.feed("Yes.\nUs"), stream.stopped) == ("Yes.", False)
    assert (stream.feed("er: and"), stream.stopped) == ("", True)
    assert stream.feed("", final=True) == ""


def test_text_that_only_began_like_a_stop_is_released() -> None:
    stream = StopStrings(["\nUser:"])
    assert (stream.feed("Yes.\nUs"), stream.stopped) == ("Yes.", False)
    assert (stream.feed("ual"), stream.stopped) == ("\nUsual", False)


def test_an_earlier_beginning_is_waited_for() -> None:
    stream = StopStrings(["abcd", "bc"])
    assert (stream.feed("xabc"), stream.stopped) == ("x", False)
    assert (stream.feed("d"), stream.stopped) == ("", True)


def test_a_stop_that_waited_in_vain_still_counts_at_the_end() -> None:
    stream = StopStrings(["abcd", "bc"])
    stream.feed("xabc")
    assert stream.feed("", final=True) == "a"
    assert stream.stopped


def test_nothing_follows_a_stop() -> None:
    stream = StopStrings(["."])
    assert (stream.feed("a.b"), stream.stopped) == ("a", True)
    assert (stream.feed("c"), stream.stopped) == ("", True)
    assert stream.feed("", final=True) == ""


@example(["a", ""])
@given(stop_lists.map(lambda stops: [*stops, ""]))
def test_an_empty_stop_string_is_refused(stops: list[str]) -> None:
    with pytest.raises(UsageError, match="at least one character"):
        StopStrings(stops)
