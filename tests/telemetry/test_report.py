"""What reports say, against what was recorded."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import pytest

from localspec.decoding.round import Draft, Round, Verdict
from localspec.display import sparkline
from localspec.errors import UsageError
from localspec.telemetry.log import read_records
from localspec.telemetry.reply import Pair
from localspec.telemetry.report import Report, make_report, plain_cost
from localspec.telemetry.view import as_json, html_page, replies_view, since, terminal_view
from tests.telemetry.talking import first, recording


def report_of(directory: Path, since_s: float | None = None) -> Report:
    return make_report(read_records(directory), since_s)


def test_figures_are_sums_of_what_was_recorded(tmp_path: Path) -> None:
    with recording(tmp_path) as talk:
        talk.reply(rounds=50, acceptance=1.0, asked="Why?")
        talk.reply(rounds=50, acceptance=0.0, asked="Write a poem about rain.")
    report = report_of(tmp_path)
    assert report.replies == 2
    assert report.total.rounds == 100
    assert report.total.drafted == 2 * 40 * 3
    assert report.total.acceptance_rate == 0.5
    assert report.by["workload"]["chat"].acceptance_rate == 1.0
    assert report.by["workload"]["creative"].acceptance_rate == 0.0
    assert report.by["drafter"]["model"].rounds == 80
    assert report.by["drafter"]["off"].drafted == 0
    assert list(report.by["pair"]) == ["qwen-target + qwen-draft"]
    assert report.tallies["position"]["model"][0] == [80, 40]
    assert report.tallies["position"]["model"][2][0] == 40
    assert report.tallies["rank"]["model"][2][0] == 40
    assert report.total.seconds == pytest.approx(80 * 0.030 + 20 * 0.025)
    assert report.total.stages_s["draft"] == pytest.approx(100 * 0.005 - 20 * 0.005)


def test_speed_up_is_against_rounds_without_a_draft_as_they_were_measured(tmp_path: Path) -> None:
    with recording(tmp_path) as talk:
        talk.reply(rounds=200, acceptance=1.0)
    report = report_of(tmp_path)
    assert report.plain["qwen-target + qwen-draft"].source == "measured"
    drafted = report.by["drafter"]["model"]
    # Four tokens in 30 ms, where plain ones take 25 each.
    assert drafted.speed_up == pytest.approx(4 * 0.025 / 0.030, rel=1e-6)
    assert report.by["drafter"]["off"].speed_up is None
    assert drafted.saved_s == pytest.approx(160 * (4 * 0.025 - 0.030))


def test_a_figure_of_what_drafting_gains_is_told_where_it_is_beyond_noise(tmp_path: Path) -> None:
    """Of six replies three are twice as fast as plain rounds, and three as much slower."""
    for name, rates in (("noise", (1.0, 0.0) * 3), ("gain", (1.0, 0.9) * 3), ("few", (1.0,) * 4)):
        with recording(tmp_path / name) as talk:
            for rate in rates:
                talk.reply(rounds=60, acceptance=rate, n_drafted=1)
        report = report_of(tmp_path / name)
        assert report.total.is_measurable is (name == "gain")
        assert json.loads(as_json(report))["total"]["is_measurable"] is (name == "gain")
        told = terminal_view(report, every=False)
        assert ("no measurable difference by drafting" in told) is (name != "gain")
        assert (f"{report.total.speed_up:.2f}" in told) is (name == "gain")


@contextmanager
def hours_of(directory: Path) -> Iterator[Callable[[int, float, int], None]]:
    """Record; yield what tells of 200 rounds so many hours ago, at a load, of which every so many is plain."""
    with recording(directory) as talk:

        def tell(hours_ago: int, load: float, plain_every: int) -> None:
            talk.recorder.now = partial(earlier, hours_ago)
            talk.reply(rounds=200, acceptance=1.0, load=load, plain_every=plain_every)

        yield tell


def test_quiet_hour_is_no_speed_up_over_a_busy_one(tmp_path: Path) -> None:
    with hours_of(tmp_path) as tell:
        tell(5, 8.0, 1)
        tell(3, 1.0, 1)
    report = report_of(tmp_path)
    told = terminal_view(report)
    assert report.total.drafted == 0
    assert [its.speed_up for its in report.by["time"].values()] == [None, None]
    assert report.total.speed_up is None
    assert report.total.saved_s is None
    assert "nothing was drafted" in told
    assert "trend" not in told


def test_rounds_are_compared_with_plain_ones_of_their_own_hour(tmp_path: Path) -> None:
    with hours_of(tmp_path) as tell:
        tell(5, 8.0, 5)
        tell(3, 1.0, 5)
    report = report_of(tmp_path)
    # Of five rounds four give four tokens in 30 ms, and one gives one in 25.
    true = 17 * 0.025 / (4 * 0.030 + 0.025)
    for figures in (report.total, *report.by["time"].values()):
        assert figures.speed_up == pytest.approx(true, rel=1e-4)
    assert report.by["drafter"]["model"].speed_up == pytest.approx(4 * 0.025 / 0.030, rel=1e-4)


def test_hours_with_hardly_a_plain_round_are_left_out_of_the_comparison(tmp_path: Path) -> None:
    with hours_of(tmp_path) as tell:
        tell(5, 8.0, 5)
        tell(3, 1.0, 50)
    report = report_of(tmp_path)
    assert report.total.rounds_compared == 200
    assert [its.speed_up is None for its in report.by["time"].values()] == [False, True]
    assert "are of 200 of 400 rounds" in terminal_view(report)
    assert "are of" not in terminal_view(report, every=False)
    assert "ms per token without drafting" in terminal_view(report, every=False)


def test_without_plain_rounds_the_calibration_is_the_measure(tmp_path: Path) -> None:
    with recording(tmp_path) as talk:
        talk.reply(rounds=4, acceptance=1.0)
    report = report_of(tmp_path)
    assert report.plain["qwen-target + qwen-draft"].source == "calibrated"
    assert report.total.speed_up == pytest.approx(16 * 0.020 / (4 * 0.030))


def test_plain_cost_follows_depth_and_is_a_line_where_nothing_was_measured() -> None:
    cost = plain_cost({0: (100, 2.0), 1024: (100, 4.0), 2048: (3, 9.0)}, 0.5)
    assert cost.of(0) == pytest.approx(0.02)
    assert cost.of(1024) == pytest.approx(0.04)
    deeper = cost.of(2048)
    assert 0.04 < deeper < 0.08
    assert plain_cost({}, None).source == "unknown"
    assert plain_cost({0: (5, 1.0)}, 0.03).of(4096) == 0.03


def test_since_leaves_out_what_was_before(tmp_path: Path) -> None:
    with recording(tmp_path) as talk:
        talk.recorder.now = lambda: time.time() - 5 * 3600
        talk.reply(rounds=10)
        talk.recorder.now = time.time
        talk.reply(rounds=7)
    assert report_of(tmp_path, since("2h")).total.rounds == 7
    report = report_of(tmp_path)
    assert report.total.rounds == 17
    assert len(report.by["time"]) == 2


@pytest.mark.parametrize("text", ["yesterday", "", "7", "7m", "2026-13-01", "-3d", "9" * 30 + "d"])
def test_moment_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a time"):
        since(text)


def test_moments() -> None:
    assert since("3d", 1_000_000.0) == 1_000_000.0 - 3 * 86400
    assert since("2026-11-20T08:00:00+00:00") == 1795161600.0


class Page(HTMLParser):
    """Notes what a page is made of, and that every element is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def earlier(hours: int) -> float:
    """Return the time so many hours ago."""
    return time.time() - 3600 * hours


def test_page_is_whole_and_fetches_and_runs_nothing(tmp_path: Path) -> None:
    with recording(tmp_path) as talk:
        talk.recorder.pair = Pair("<script>alert(1)</script>&", "", 0.02)
        for hour in range(5):
            talk.recorder.now = partial(earlier, hour)
            talk.reply(rounds=60, acceptance=0.2 * hour)
    text = html_page(report_of(tmp_path), time.time())
    page = Page()
    page.feed(text)
    assert page.open == []
    assert not page.tags & {"script", "link", "img", "iframe", "object"}
    assert not page.attributes & {"src", "href", "onload", "onclick"}
    assert "http" not in text
    assert "url(" not in text
    assert "<script>alert" not in text
    for word in ("confidence", "by position", "by time", "speed-up", "▁", "█", "verify"):
        assert word in text


def test_lines_and_json_tell_the_same(tmp_path: Path) -> None:
    with recording(tmp_path) as talk:
        talk.reply(rounds=50, acceptance=0.6)
    report = report_of(tmp_path)
    told, document = terminal_view(report), json.loads(as_json(report))
    assert f"{report.total.acceptance_rate:.0%}" in told
    assert document["total"]["accepted"] == report.total.accepted
    assert document["workloads"]["chat"]["rounds"] == 50
    assert document["pairs"]["qwen-target + qwen-draft"]["plain"]["source"] == "calibrated"
    assert document["drafters"]["model"]["correction_ranks"].keys() == {"2"}


def test_second_choices_are_recorded_by_their_place_and_apart_from_what_was_drafted(
    tmp_path: Path,
) -> None:
    draft = Draft((5, 6), (0.8,) * 2, "model", (1.5, 1.5), ((1, 2), (1, 2)), branches=(1, 0))
    with recording(tmp_path) as talk:
        trace = talk.recorder.begin("x", [1, 2], greedy=True)
        trace.note(first())
        trace.note(Round(draft, Verdict(1, 9, branch=1), (5, 1, 9)))
        trace.note(Round(draft, Verdict(0, 2), (2,)))
        trace.end("", 0.1, 0.034)
    (reply,) = read_records(tmp_path).replies.values()
    assert reply.tallies["model"]["branch"] == [(2, 0), (2, 1)]
    assert reply.tallies["model"]["rank"] == [(0, 0), (0, 0), (1, 0), (1, 0)]
    assert reply.cells["model"][0][:4] == (2, 4, 1, 4)
    report = report_of(tmp_path)
    assert "second choices" in terminal_view(report)
    assert json.loads(as_json(report))["drafters"]["model"]["branches"] == [
        {"bucket": 0, "judged": 2, "accepted": 0},
        {"bucket": 1, "judged": 2, "accepted": 1},
    ]


def test_report_of_nothing_says_so(tmp_path: Path) -> None:
    with recording(tmp_path) as talk:
        talk.reply(rounds=1)
    report = report_of(tmp_path, time.time() + 7200)
    assert terminal_view(report).startswith("nothing was recorded since ")
    assert "nothing was recorded" in html_page(report, 0.0)
    assert json.loads(as_json(report))["total"]["rounds"] == 0


def test_replies_are_lines_with_their_numbers(tmp_path: Path) -> None:
    with recording(tmp_path) as talk:
        talk.reply(rounds=3, asked="Why?")
        talk.reply(rounds=5, asked="Write a poem.")
    first, second = replies_view(read_records(tmp_path).replies.values())
    assert first.split()[0] == "1"
    assert "creative" in second
    assert "guess" in second


def test_names_are_no_markup(tmp_path: Path) -> None:
    with recording(tmp_path) as talk:
        talk.recorder.pair = Pair("[bold]a[/] :smile:")
        talk.reply()
    assert "[bold]a[/] :smile:" in terminal_view(report_of(tmp_path))


def test_sparkline_spans_its_values_and_leaves_gaps() -> None:
    assert sparkline([0.0, None, 1.0], 0.0, 1.0) == "▁ █"
    assert sparkline([0.5, 0.5], 0.5, 0.5) == "██"
