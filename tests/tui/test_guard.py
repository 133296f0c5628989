from rich.control import Control
from rich.segment import Segment
from rich.style import Style
from textual.color import Color

from localspec.tui.app import LineGuard
from tests.tui.test_clean import EVIL, obeyed


def guarded(*segments: Segment) -> list[Segment]:
    return LineGuard().apply(list(segments), Color(0, 0, 0))


def test_no_widget_gets_a_control_character_out() -> None:
    (segment,) = guarded(Segment(EVIL, Style(bold=True)))
    assert obeyed(segment.text) == []
    assert "\n" not in segment.text
    assert segment.style == Style(bold=True)


def test_clean_segments_pass_untouched() -> None:
    segment = Segment("日本語 plain", Style(color="red"))
    assert guarded(segment)[0] is segment


def test_an_address_of_a_model_becomes_no_link() -> None:
    (segment,) = guarded(Segment("click", Style(link="https://example.org/\x1b]8;;")))
    assert segment.style is not None
    assert segment.style.link is None


def test_what_textual_itself_controls_passes() -> None:
    control = Control.move(1, 1).segment
    assert guarded(control) == [control]
