"""Progress on a terminal, and in a log."""

import io
import re
import sys
import time

import pytest
from rich.cells import cell_len

from localspec.batch.batch import Tally
from localspec.cli import progress
from localspec.cli.batch import progress_text, summary
from localspec.cli.progress import ProgressLine, print_list, print_table
from localspec.display import MEASURED_AGAIN, cut, duration_text
from localspec.models.transfer import Progress as Transfer

WIDE = "a-long-name-of-a-model-\N{CJK UNIFIED IDEOGRAPH-6A21}"


class Stderr(io.StringIO):
    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


class Watched:
    """A progress line, its stream, and a clock that is set by hand."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, terminal: bool = True, **how: bool
    ) -> None:
        self.now = 1000.0
        self.err = Stderr(terminal=terminal)
        monkeypatch.setattr(sys, "stderr", self.err)
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        self.line = ProgressLine(**{"enabled": True, **how}, notice_s=30)

    @property
    def drawn(self) -> list[str]:
        return self.err.getvalue().split("\r\x1b[K")[1:]

    @property
    def lines(self) -> list[str]:
        """What was written, without moves of the cursor and colours."""
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.err.getvalue().replace("\r", "\n"))
        return text.rstrip().splitlines()


@pytest.fixture(autouse=True)
def a_terminal_that_can_move_its_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")


def at(done_bytes: int, source: str = "hub a/b", name: str = "toy", reason: str = "") -> Transfer:
    return Transfer(name, done_bytes, 50_000_000, source, reason)


def test_a_terminal_has_a_bar_for_each_file_and_source(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    with watched.line as line:
        line.download(at(0))
        line.download(Transfer("other", 30_000_000, 100_000_000, "hub a/b"))
        line.download(at(10_000_000))
        line.download(at(20_000_000, "wheels c"))
    text = "\n".join(watched.lines)
    assert re.search("40% downloading toy .* 20.0/50.0 MB", text)
    assert re.search("30% downloading other .* 30.0/100.0 MB", text)
    assert watched.err.getvalue().endswith("\x1b[2K\r\x1b[K"), "the last line is erased"


@pytest.mark.parametrize("width", [20, 40, 79])
def test_a_narrow_terminal_has_the_share(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    watched = Watched(monkeypatch)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(progress, "columns", lambda: width - 1)
    with watched.line as line:
        line.download(at(7_000_000, name=WIDE))
        line.load(WIDE, 0.5)
    assert any("14%" in each for each in watched.lines)
    assert watched.lines[-1].endswith("  50%")
    assert all(cell_len(each) <= width for each in watched.lines)


def test_a_terminal_is_drawn_to_ten_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    for _ in range(1000):
        watched.now += 0.001
        watched.line.load("toy", 0.5)
    assert 9 <= len(watched.drawn) <= 10
    watched = Watched(monkeypatch)
    watched.line.load("\x1b[2J\n.gguf", 0.25)
    assert watched.drawn == ["loading '\\x1b[2J\\n.gguf'  25%"]


def test_a_log_has_a_line_for_each_source(monkeypatch: pytest.MonkeyPatch) -> None:
    for term, terminal in [("xterm", False), ("dumb", True)]:
        monkeypatch.setenv("TERM", term)
        watched = Watched(monkeypatch, terminal=terminal)
        with watched.line as line:
            for done in (0, 10, 20):
                line.download(at(done))
                watched.now += 1.0
            line.download(at(0, "wheels c", reason="hub a/b: no connection"))
            line.download(at(30_000_000, name="half"))
            line.load("toy", 0.5)
        _, first, second, third = " ".join(watched.lines).split("localspec: ")
        assert first == "downloading toy (50 MB) from hub a/b "
        assert ("(wheels c)" in second, "hub a/b: no connection" in second) == (True, True)
        assert third == "downloading half (50 MB, 30 MB done) from hub a/b"
    for terminal in [True, False]:
        watched = Watched(monkeypatch, terminal=terminal, enabled=False)
        with watched.line as line:
            line.download(at(0))
            line.load("toy", 0.5)
            line.report("text", at_once=True)
        assert watched.err.getvalue() == ""
    watched = Watched(monkeypatch, drawing=False)
    for passed in range(100):
        watched.now = 1000.0 + passed
        watched.line.report(str(passed))
    assert watched.lines == [f"localspec: {each}" for each in (30, 60, 90)]


def test_a_measurement_says_of_what_and_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    where, skip = " on this machine", " (--draft off needs none)"
    for terminal, name, told in [
        (True, "toy for --exact", f"measuring toy for --exact{where}  20%, at most 80 s left"),
        (True, "toy", f"measuring toy{where}{skip}  20%, 80 s left"),
        (True, "toy" * 9, f"measuring {'toy' * 9}{where}  20%, 80 s left"),
        (False, "toy for --exact", f"localspec: measuring toy for --exact{where}{skip}"),
        (False, "toy for reading", f"localspec: measuring toy for reading{where}"),
        (False, "toy", f"localspec: measuring toy{where}{skip}"),
        (False, "toy", "localspec: measured 20%, 80 s left"),
    ]:
        watched = Watched(monkeypatch, terminal=terminal)
        with watched.line as line:
            for share in (0.0, 0.1, 0.2, 0.4):
                line.measure(name, share)
                watched.now += 10.0
        assert told in (watched.drawn if terminal else watched.lines)
        assert not any("10%, " in each for each in (*watched.drawn, *watched.lines))


def test_a_measurement_made_again_names_the_whole_model(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    watched.line.measure("smollm2-135m" + MEASURED_AGAIN, 0.5)
    assert watched.drawn == [f"measuring smollm2-135m{MEASURED_AGAIN}  50%"]


def test_what_a_measurement_leaves_is_told_by_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    # The first pass was over at the first report, and another way of the same name begins later.
    for shares in ((0.1, 0.35), (0.0, 1.0, 0.1, 0.35)):
        watched = Watched(monkeypatch)
        with watched.line as line:
            for share in shares:
                line.measure("toy for reading", share)
                watched.now += 4.0
        assert watched.drawn[-2].endswith("35%, 10 s left"), watched.drawn


def test_sentences_are_short() -> None:
    text = progress_text(Tally(30, 2, 500), 10.0, share=0.5, share_before=0.25)
    assert text == "30 done, 2 failed, 20 s left, 50.0 tokens/s"
    assert progress_text(Tally(3), 0.0, 0.5, 0.5) == "3 done"
    assert "line 1: empty" in summary(Tally(0, 1, first_error="line 1: empty"), 0.0)
    told = summary(Tally(1, 1, 9, earlier=1, first_error="line 67: empty"), 1.0, resumed=True)
    assert "the first that failed in this run, line 67: empty" in told, "an earlier run had others"
    told = summary(Tally(7, 1), 1.0, resumed=True)
    assert told.endswith("nothing was left to answer; --retry-failed answers what failed again")
    assert summary(Tally(7), 1.0, resumed=True).endswith("nothing was left to answer")
    told = summary(Tally(7, 1, 50, earlier=4), 10.0, resumed=True)
    assert told.startswith(
        "7 answered, 4 of them by earlier runs · 1 failed · 50 tokens in this run"
    )
    assert summary(Tally(3, 1, 50), 10.0) == "3 answered · 1 failed · 50 tokens, 5.0 tokens/s"
    seconds = {0.2: "0 s", 99: "99 s", 100: "2 min", 5900: "98 min", 6600: "1 h 50 min"}
    assert {each: duration_text(each) for each in seconds} == seconds
    assert [cut(each, 3) for each in ("abc", "abcd")] == ["abc", "ab…"]
    assert (cut(f"{WIDE[-1]}bcd", 3), cut("abc", 0)) == (f"{WIDE[-1]}…", "")


def test_no_table_breaks_a_word_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        ("one", "100 MB", "about ten tokens a second, estimated, and 3 GB of memory"),
        ("two and more", "9 GB", "chat · needs 8 GB · tools"),
    ]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("localspec.cli.progress.columns_of", lambda _: 50)
    print_table(rows, whole=True)
    assert capsys.readouterr().out.splitlines() == [
        "one           100 MB  about ten tokens a second,",
        "                      estimated, and 3 GB of",
        "                      memory",
        "two and more  9 GB    chat · needs 8 GB · tools",
    ]
    monkeypatch.setattr("localspec.cli.progress.columns_of", lambda _: 45)
    print_table(rows)
    assert capsys.readouterr().out.splitlines() == [
        "one           100 MB  about ten tokens a…",
        "two and more  9 GB    chat · needs 8 GB",
    ]
    monkeypatch.setattr("localspec.cli.progress.columns_of", lambda _: 30)
    print_table([("sha256", "0" * 40)], whole=True)
    print_table(rows)
    assert capsys.readouterr().out.splitlines() == [
        f"sha256  {'0' * 40}",
        "one  100 MB  about ten tokens…",
        "two and more  9 GB  chat",
    ]


def test_what_a_list_says_where_it_is_empty_is_broken_between_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    err = Stderr(terminal=True)
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setattr("localspec.display.columns_of", lambda _: 30)
    print_list([], [], "no models yet: `localspec pull NAME` downloads one", json_=False)
    assert err.getvalue() == "no models yet: `localspec pull\nNAME` downloads one\n"
