import sys
import threading

import pytest

from localspec.chat.events import Prefilling, Started, Text
from localspec.cli import output
from localspec.cli.output import ReadingLine
from tests.cli.test_progress import Stderr
from tests.waiting import PATIENCE_S


class Watched:
    """A line whose terminal says when it was drawn to."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, terminal: bool, patience_s: float
    ) -> None:
        self.err, self.written = Stderr(terminal=terminal), threading.Event()
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr(sys, "stderr", self.err)
        monkeypatch.setattr(output, "PATIENCE_S", patience_s)
        monkeypatch.setattr(self.err, "flush", self.written.set)
        self.line = ReadingLine(enabled=True)

    @property
    def drawn(self) -> list[str]:
        return self.err.getvalue().split("\r\x1b[K")[1:]


def test_a_long_prompt_is_told_of_until_the_first_word(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, terminal=True, patience_s=0.01)
    with watched.line as line:
        line.take(Started(8200, 80))
        assert watched.written.wait(PATIENCE_S)
        line.take(Prefilling(3412, 8120))
        line.take(Text("A"))
        line.take(Text(" word"))
    assert watched.drawn == ["reading 0 of 8,120 tokens", "reading 3,412 of 8,120 tokens", ""]


@pytest.mark.parametrize(("terminal", "patience_s"), [(True, 1000.0), (False, 0.0)])
def test_a_short_wait_and_a_pipe_see_nothing(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, patience_s: float
) -> None:
    watched = Watched(monkeypatch, terminal=terminal, patience_s=patience_s)
    with watched.line as line:
        line.take(Started(8200, 80))
        line.take(Prefilling(3412, 8120))
        line.take(Text("A"))
    assert watched.err.getvalue() == ""


def test_an_end_while_reading_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, terminal=True, patience_s=0.0)
    with watched.line as line:
        line.take(Started(8200, 80))
        assert watched.written.wait(PATIENCE_S)
    assert watched.drawn[-1] == ""
