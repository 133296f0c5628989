from rich.control import Control
from rich.segment import Segment
from rich.style import Style
from textual.color import Color

from localspec.tui.app import LineGuard
from tests.tui.test_clean import EVIL, obeyed


def guarded(segment: Segment) -> Segment:
    (only,) = LineGuard().apply([segment], Color(0, 0, 0))
    return only


def test_no_widget_gets_out_what_a_terminal_obeys() -> None:
    evil = guarded(Segment(EVIL, Style(bold=True)))
    assert obeyed(evil.text) == []
    assert "\n" not in evil.text
    assert evil.style == Style(bold=True)
    link = guarded(Segment("click", Style(link="https://example.org/\x1b]8;;")))
    assert link.style is not None
    assert link.style.link is None


def test_clean_segments_and_what_textual_itself_controls_pass() -> None:
    for segment in (Segment("日本語 plain", Style(color="red")), Control.move(1, 1).segment):
        assert guarded(segment) == segment
