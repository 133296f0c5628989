import io
import sys
import time

import pytest

from localspec.cli.progress import ProgressLine
from localspec.models.progress import Progress


class Stderr(io.StringIO):
    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def at(done_bytes: int, source: str = "hub a/b") -> Progress:
    return Progress("toy", done_bytes, 50_000_000, source)


class Watched:
    """A progress line, its stream, and a clock that is set by hand."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, terminal: bool, enabled: bool = True
    ) -> None:
        self.now = 1000.0
        self.err = Stderr(terminal=terminal)
        monkeypatch.setattr(sys, "stderr", self.err)
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        self.line = ProgressLine(enabled=enabled)

    @property
    def drawn(self) -> list[str]:
        return self.err.getvalue().split("\r\x1b[K")[1:]


@pytest.fixture(autouse=True)
def a_terminal_that_can_move_its_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")


def test_a_terminal_sees_how_far_how_fast_and_how_long_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched(monkeypatch, terminal=True)
    with watched.line as line:
        line.download(at(0))
        watched.now += 2.0
        line.download(at(10_000_000))
    assert watched.drawn == [
        "fetching toy  0 of 50 MB  0.0 MB/s  waiting",
        "fetching toy  10 of 50 MB  5.0 MB/s  8 s left",
        "",  # nothing stays
    ]


def test_a_terminal_is_not_drawn_to_more_than_ten_times_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched(monkeypatch, terminal=True)
    for _ in range(1000):
        watched.now += 0.001
        watched.line.load("toy", 0.5)
    assert 9 <= len(watched.drawn) <= 10


def test_the_speed_of_the_next_source_starts_afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, terminal=True)
    watched.line.download(at(0))
    watched.now += 100.0
    watched.line.download(at(0, "wheels c"))
    watched.now += 1.0
    watched.line.download(at(10_000_000, "wheels c"))
    assert watched.drawn[-1] == "fetching toy  10 of 50 MB  10.0 MB/s  4 s left"


def test_a_log_gets_one_line_for_each_source(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, terminal=False)
    with watched.line as line:
        for done in (0, 10, 20):
            line.download(at(done))
            watched.now += 1.0
        line.download(at(0, "wheels c"))
        line.load("toy", 0.5)
    assert watched.err.getvalue() == (
        "localspec: fetching toy (50 MB) from hub a/b\n"
        "localspec: fetching toy (50 MB) from wheels c\n"
    )


def test_a_dumb_terminal_is_treated_as_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    watched = Watched(monkeypatch, terminal=True)
    with watched.line as line:
        line.download(at(0))
        line.load("toy", 0.5)
    assert watched.err.getvalue() == "localspec: fetching toy (50 MB) from hub a/b\n"


def test_what_was_here_before_has_not_arrived_at_any_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, terminal=True)
    watched.line.download(at(30_000_000))
    watched.now += 2.0
    watched.line.download(at(40_000_000))
    assert watched.drawn[-1] == "fetching toy  40 of 50 MB  5.0 MB/s  2 s left"


def test_several_files_share_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, terminal=True)
    watched.line.download(at(0))
    watched.line.download(Progress("other", 0, 100_000_000, "hub a/b"))
    watched.now += 2.0
    watched.line.download(at(10_000_000))
    watched.now += 2.0
    watched.line.download(Progress("other", 60_000_000, 100_000_000, "hub a/b"))
    assert watched.drawn[-1] == ("fetching toy 20%, other 60%  70 of 150 MB  17.5 MB/s  5 s left")


def test_a_log_is_told_what_is_here_already(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, terminal=False)
    watched.line.download(at(30_000_000))
    assert watched.err.getvalue() == (
        "localspec: fetching toy (50 MB, 30 MB are here already) from hub a/b\n"
    )


@pytest.mark.parametrize("terminal", [True, False])
def test_switched_off_it_says_nothing(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    watched = Watched(monkeypatch, terminal=terminal, enabled=False)
    with watched.line as line:
        line.download(at(0))
        line.load("toy", 0.5)
    assert watched.err.getvalue() == ""


def test_a_file_name_cannot_command_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, terminal=True)
    watched.line.load("\x1b[2J\n.gguf", 0.25)
    assert watched.drawn == ["loading '\\x1b[2J\\n.gguf'  25%"]
