"""Where an answer ends, or what fills a gap, however its text was cut."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from localspec.chat.reply_text import InfillStop, StopStrings
from localspec.errors import UsageError
from localspec.messages import Infill
from tests.chat.cutting import cut
from tests.toy import Stopwatch

LETTERS = st.text(alphabet="ab\n", max_size=30)
STOPS = st.lists(st.text(alphabet="ab\n", min_size=1, max_size=5), max_size=4)


@given(LETTERS, STOPS, st.data())
def test_text_before_the_first_stop(text: str, stops: list[str], data: st.DataObject) -> None:
    stream = StopStrings(stops)
    visible = "".join(stream.feed(chunk) for chunk in cut(data, text)) + stream.feed("", final=True)
    assert visible == text[: min((text.find(s) for s in stops if s in text), default=len(text))]
    assert stream.stopped == any(stop in text for stop in stops)


@given(LETTERS, STOPS)
def test_only_a_possible_beginning_of_a_stop_is_held_back(text: str, stops: list[str]) -> None:
    stream, visible = StopStrings(stops), ""
    for end, letter in enumerate(text, start=1):
        visible += stream.feed(letter)
        if stream.stopped:
            break
        held = text[len(visible) : end]
        assert not held or any(stop.startswith(held) or stop in held for stop in stops)


@example(["a", ""])
@given(STOPS.map(lambda stops: [*stops, ""]))
def test_an_empty_stop_string_is_refused(stops: list[str]) -> None:
    with pytest.raises(UsageError, match="at least one character"):
        StopStrings(stops)


def infill(
    stops: tuple[str, ...] = (), indent: int = 0, within_s: float | None = None
) -> tuple[InfillStop, Stopwatch]:
    clock = Stopwatch(0.0)
    return InfillStop(stops, Infill("", "", indent=indent, within_s=within_s), clock), clock


def before_the_first_that_is_indented_less(text: str, indent: int) -> str:
    """Return the lines before it; a last line of nothing but white space may become anything."""
    first, *lines = text.split("\n")
    before = [first]
    for at, line in enumerate(lines, 1):
        space = len(line) - len(line.lstrip(" \t"))
        if space < indent and not (at == len(lines) and space == len(line)):
            break
        before.append(line)
    return "\n".join(before)


@given(st.text(alphabet="ab \t\n", max_size=30), st.integers(0, 3), st.data())
def test_lines_that_are_indented_enough(text: str, indent: int, data: st.DataObject) -> None:
    end, _ = infill(indent=indent)
    visible = "".join(end.feed(chunk) for chunk in cut(data, text)) + end.feed("", final=True)
    assert visible == before_the_first_that_is_indented_less(text, indent)
    assert end.stopped == end.cut == (visible != text)


def test_it_ends_with_the_line_that_is_being_written_when_time_is_up() -> None:
    end, clock = infill(within_s=0.25)
    for now_s, text, visible, stopped in [
        (5.0, "return x\n", "return x\n", False),
        (5.3, "y = ", "y = ", False),
        (5.3, "1\nz", "1", True),
        (5.3, "more", "", True),
    ]:
        clock.now_s = now_s
        assert (end.feed(text), end.stopped, end.cut) == (visible, stopped, stopped)
    assert end.feed("", final=True) == ""


@pytest.mark.parametrize(
    ("text", "visible", "cut"), [("a\n  b;\nc", "a\n  b", False), ("a\nb;", "a", True)]
)
def test_whichever_end_comes_first_counts(text: str, visible: str, cut: bool) -> None:
    end, _ = infill((";",), indent=2)
    assert (end.feed(text), end.stopped, end.cut) == (visible, True, cut)
