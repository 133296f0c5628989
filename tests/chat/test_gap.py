"""What fills a gap ends at a line that is indented less, or when it took long enough, however the text was cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.chat.reply_text import InfillStop
from localspec.messages import Infill
from tests.chat.cutting import cut
from tests.toy import Stopwatch


def ending(
    stops: tuple[str, ...] = (), indent: int = 0, within_s: float | None = None
) -> tuple[InfillStop, Stopwatch]:
    clock = Stopwatch(0.0)
    return InfillStop(stops, Infill("", "", indent=indent, within_s=within_s), clock), clock


def before_the_first_that_is_indented_less(text: str, indent: int) -> str:
    """Return what is kept, line by line; a last line of nothing but white space may become anything."""
    first, *lines = text.split("\n")
    kept = [first]
    for at, line in enumerate(lines, 1):
        space = len(line) - len(line.lstrip(" \t"))
        if space < indent and not (at == len(lines) and space == len(line)):
            break
        kept.append(line)
    return "\n".join(kept)


@given(st.text(alphabet="ab \t\n", max_size=30), st.integers(0, 3), st.data())
def test_any_cutting_gives_the_lines_that_are_indented_enough(
    text: str, indent: int, data: st.DataObject
) -> None:
    end, _ = ending(indent=indent)
    shown = "".join(end.feed(chunk) for chunk in cut(data, text)) + end.feed("", final=True)
    assert shown == before_the_first_that_is_indented_less(text, indent)
    assert end.stopped == end.cut == (shown != text)


def test_it_ends_with_the_line_that_is_being_written_when_time_is_up() -> None:
    end, clock = ending(within_s=0.25)
    clock.now_s = 5.0
    assert (end.feed("return x\n"), end.stopped) == ("return x\n", False)
    clock.now_s = 5.3
    assert (end.feed("y = "), end.stopped) == ("y = ", False)
    assert (end.feed("1\nz"), end.stopped) == ("1", True)
    assert end.cut
    assert (end.feed("more"), end.stopped) == ("", True)
    assert end.feed("", final=True) == ""


def test_without_a_line_break_time_is_never_up() -> None:
    end, clock = ending(within_s=0.25)
    end.feed("x")
    clock.now_s = 9.0
    assert (end.feed(" = 1"), end.stopped) == (" = 1", False)


@pytest.mark.parametrize(
    ("text", "kept", "cut"), [("a\n  b;\nc", "a\n  b", False), ("a\nb;", "a", True)]
)
def test_whichever_end_comes_first_counts(text: str, kept: str, cut: bool) -> None:
    end, _ = ending((";",), indent=2)
    assert (end.feed(text), end.stopped) == (kept, True)
    assert end.cut == cut
