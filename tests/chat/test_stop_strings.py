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


@pytest.mark.parametrize(
    ("stops", "steps", "rest"),
    [
        (["\nUser:"], [("Yes.\nUs", "Yes.", False), ("er: and", "", True)], ""),
        (["\nUser:"], [("Yes.\nUs", "Yes.", False), ("ual", "\nUsual", False)], ""),
        (["abcd", "bc"], [("xabc", "x", False), ("d", "", True)], ""),
        (["abcd", "bc"], [("xabc", "x", False)], "a"),
        (["."], [("a.b", "a", True), ("c", "", True)], ""),
    ],
    ids=["spans feeds", "only began", "earlier beginning", "waited in vain", "nothing follows"],
)
def test_what_is_certain_comes_at_once(
    stops: list[str], steps: list[tuple[str, str, bool]], rest: str
) -> None:
    stream = StopStrings(stops)
    for text, certain, stopped in steps:
        assert (stream.feed(text), stream.stopped) == (certain, stopped)
    assert stream.feed("", final=True) == rest
    assert stream.stopped == (rest == "a" or steps[-1][2])


@example(["a", ""])
@given(stop_lists.map(lambda stops: [*stops, ""]))
def test_an_empty_stop_string_is_refused(stops: list[str]) -> None:
    with pytest.raises(UsageError, match="at least one character"):
        StopStrings(stops)
