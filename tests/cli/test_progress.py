import io
import sys
import time
from dataclasses import replace

import pytest

from localspec.cli import progress, redrawn_line
from localspec.cli.progress import ProgressLine
from localspec.cli.progress_text import download_text
from localspec.display import cells_of, cut, duration_text
from localspec.models.transfer import Progress


class Stderr(io.StringIO):
    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def at(done_bytes: int, source: str = "hub a/b") -> Progress:
    return Progress("toy", done_bytes, 50_000_000, source)


BAR_20 = "[====                    ]"


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
        "fetching toy  [                        ]  0 of 50 MB  0.0 MB/s  waiting",
        "fetching toy  [====                    ]  10 of 50 MB  5.0 MB/s  8 s left",
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
    assert watched.drawn[-1] == f"fetching toy  {BAR_20}  10 of 50 MB  10.0 MB/s  4 s left"


def test_a_log_gets_one_line_for_each_source(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, terminal=False)
    with watched.line as line:
        for done in (0, 10, 20):
            line.download(at(done))
            watched.now += 1.0
        line.download(replace(at(0, "wheels c"), reason="hub a/b: no connection"))
        line.load("toy", 0.5)
    assert watched.err.getvalue() == (
        "localspec: fetching toy (50 MB) from hub a/b\n"
        "localspec: fetching toy (50 MB) from Python packages, its SHA-256 checked (wheels c), since hub a/b: no connection\n"
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
    assert (
        watched.drawn[-1]
        == "fetching toy  [===================     ]  40 of 50 MB  5.0 MB/s  2 s left"
    )


def test_several_files_share_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, terminal=True)
    watched.line.download(at(0))
    watched.line.download(Progress("other", 0, 100_000_000, "hub a/b"))
    watched.now += 2.0
    watched.line.download(at(10_000_000))
    watched.now += 2.0
    watched.line.download(Progress("other", 60_000_000, 100_000_000, "hub a/b"))
    assert watched.drawn[-1] == (
        "fetching toy 20%, other 60%  [=====       ]  70 of 150 MB  17.5 MB/s  5 s left"
    )


def test_a_log_is_told_what_is_here_already(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, terminal=False)
    watched.line.download(at(30_000_000))
    assert watched.err.getvalue() == (
        "localspec: fetching toy (50 MB, 30 MB already here) from hub a/b\n"
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


@pytest.mark.parametrize("width", [3, 10, 20, 39, 40, 50, 60, 80, 100, 200])
@pytest.mark.parametrize("count", [1, 2, 12])
def test_a_line_is_never_wider_than_its_terminal(width: int, count: int) -> None:
    moments = [
        Progress(
            f"a-long-name-of-\N{CJK UNIFIED IDEOGRAPH-6A21}-model-{n}", 10**9, 7 * 10**9, "hub"
        )
        for n in range(count)
    ]
    text = download_text(moments, 3e6, width)
    assert 3 <= cells_of(text) <= width
    assert "14%" in text or " of " in text
    if width >= 39:  # a terminal of 40 columns
        assert "3.0 MB/s" in text
        assert text.endswith(" left")


def test_a_terminal_of_40_columns_sees_rate_and_time_of_two_files() -> None:
    moments = [Progress(name, 10**9, 4 * 10**9, "hub") for name in ("target", "draft-model")]
    assert download_text(moments, 5e6, 39) == "2 files  25%  5.0 MB/s  20 min left"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (99, "99 s"), (100, "2 min"), (5900, "98 min"), (6600, "1 h 50 min")],
)
def test_times_are_told_as_people_tell_them(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_what_all_arrived_is_being_checked() -> None:
    assert download_text([Progress("toy", 5, 5, "hub")], 0.0, 80).endswith("checking")
    assert download_text([Progress("toy", 0, 0, "hub")], 0.0, 80).endswith("checking")


def test_a_cut_text_fits_in_cells() -> None:
    assert cut("abc", 3) == "abc"
    assert cut("abcd", 3) == "ab…"
    assert cut("\N{CJK UNIFIED IDEOGRAPH-6A21}bcd", 3) == "\N{CJK UNIFIED IDEOGRAPH-6A21}…"
    assert cut("abc", 0) == ""


def test_on_a_narrow_terminal_the_share_that_is_loaded_is_not_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched(monkeypatch, terminal=True)
    for module in (progress, redrawn_line):
        monkeypatch.setattr(module, "columns", lambda: 19)
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
