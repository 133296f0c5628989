"""What reports say, against what was recorded."""

import json
import time
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import pytest

from localspec.decoding.round import Draft, Round, Verdict
from localspec.display import sparkline
from localspec.errors import UsageError
from localspec.telemetry.log import Records, read_records
from localspec.telemetry.reply import Pair, ReplyRecord
from localspec.telemetry.report import Report, add_trained, make_report
from localspec.telemetry.view import as_json, html_page, replies_view, since, terminal_view
from tests.telemetry.talking import first, recording

NAME = "qwen-target + qwen-draft"


def report_of(directory: Path, since_s: float | None = None) -> Report:
    return make_report(read_records(directory), since_s)


def earlier(hours: int) -> float:
    """Return the time so many hours ago."""
    return time.time() - 3600 * hours


def report_of_hours(directory: Path, *hours: tuple[int, float, int]) -> Report:
    """Report 200 rounds for each: hours ago, the load, and every how many rounds one is plain."""
    with recording(directory) as talk:
        for ago, load, plain_every in hours:
            talk.recorder.now = partial(earlier, ago)
            talk.reply(rounds=200, acceptance=1.0, load=load, plain_every=plain_every)
    return report_of(directory)


def test_figures_are_sums_of_what_was_recorded(tmp_path: Path) -> None:
    with recording(tmp_path) as talk:
        talk.reply(rounds=50, acceptance=1.0, asked="Why?")
        talk.reply(rounds=50, acceptance=0.0, asked="Write a poem about rain.")
    report = report_of(tmp_path)
    total, by = report.total, report.by
    assert (report.replies, total.rounds, total.drafted) == (2, 100, 2 * 40 * 3)
    assert total.acceptance_rate == 0.5
    rates = {name: each.acceptance_rate for name, each in by["workload"].items()}
    assert rates == {"chat": 1.0, "creative": 0.0}
    assert (by["drafter"]["model"].rounds, by["drafter"]["off"].drafted) == (80, 0)
    assert list(by["pair"]) == [NAME]
    position = report.tallies["position"]["model"]
    assert (position[0], position[2][0]) == ([80, 40], 40)
    assert report.tallies["rank"]["model"][2][0] == 40
    assert total.seconds == pytest.approx(80 * 0.030 + 20 * 0.025)
    assert total.stages_s["draft"] == pytest.approx(80 * 0.005)
    assert "50%" in terminal_view(report)
    document = json.loads(as_json(report))
    assert document["total"]["accepted"] == total.accepted
    assert document["workloads"]["chat"]["rounds"] == 50
    assert document["drafters"]["model"]["correction_ranks"].keys() == {"2"}
    first, second = replies_view(read_records(tmp_path).replies.values())
    assert first.split()[0] == "1"
    assert "creative   (guess)" in second


def test_the_gain_is_that_of_the_answers_and_of_their_parts(tmp_path: Path) -> None:
    with recording(tmp_path) as talk:
        for load in (1.0, 8.0, 1.0, 2.0, 1.0, 1.0):  # a busy machine slows both sides alike
            talk.reply(rounds=200, acceptance=1.0, load=load)
        talk.reply(rounds=200, n_drafted=0)
    report = report_of(tmp_path)
    total, drafted = report.total, report.by["drafter"]["model"]
    # Of five rounds four give four tokens in 30 ms, and one gives one in 25.
    true = [(0.1 + load * 40 * 17 * 0.025, 0.1 + load * 40 * (4 * 0.030 + 0.025)) for load in (1, 8, 1, 2, 1, 1)]  # fmt: skip
    assert len(total.gains) == 6, "nothing was drafted in the last"
    assert total.speed_up == pytest.approx(sum(p for p, _ in true) / sum(s for _, s in true))
    assert drafted.speed_up == pytest.approx(4 * 0.025 / 0.030, rel=1e-4)
    assert (
        report.by["pair"][NAME].speed_up == report.by["workload"]["chat"].speed_up == total.speed_up
    )
    first, *_ = read_records(tmp_path).replies.values()
    assert first.gain is not None
    assert first.gain.ratio == pytest.approx(true[0][0] / true[0][1], rel=1e-4)
    assert f"{total.speed_up:.2f}" in terminal_view(report)
    rows = terminal_view(report, every=True).splitlines()
    (plain,) = (each for each in rows if each.split()[:1] == ["off"])
    assert " s" not in plain, "rounds without a draft save nothing"
    document = json.loads(as_json(report))["total"]
    assert document["speed_up_low"] < document["speed_up"] < document["speed_up_high"]


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        ((1.0, 0.0) * 3, "no clear difference"),
        ((1.0, 0.9) * 3, "over 6 drafted answers: it saved"),
        ((0.0,) * 6, "over 6 drafted answers: it added"),
        ((1.0,) * 4, "average gain not known yet: 4 of 5 drafted answers"),
    ],
)
def test_a_gain_has_an_interval_once_there_are_enough_answers(
    tmp_path: Path, rates: tuple[float, ...], words: str
) -> None:
    with recording(tmp_path) as talk:
        for rate in rates:
            talk.reply(rounds=60, acceptance=rate, n_drafted=1)
    for every in (True, False):
        assert words in terminal_view(report_of(tmp_path), every=every)


def test_where_nothing_was_drafted_there_is_no_gain(tmp_path: Path) -> None:
    report = report_of_hours(tmp_path, (5, 8.0, 1), (3, 1.0, 1))
    assert [its.speed_up for its in report.by["time"].values()] == [None, None]
    assert (report.total.drafted, report.total.speed_up, report.total.saved_s) == (0, None, None)
    assert "nothing was drafted" in terminal_view(report)
    assert "trend" not in terminal_view(report)


def test_replies_that_were_recorded_before_have_no_gain(tmp_path: Path) -> None:
    with recording(tmp_path) as talk:
        for _ in range(6):
            talk.reply()
    records = read_records(tmp_path)
    for each in records.replies.values():
        each.plain_s = 0.0
    report = make_report(records)
    assert report.total.speed_up is None
    assert "not known yet: 0 of 5 drafted answers" in terminal_view(report)


def test_since_leaves_out_what_was_before(tmp_path: Path) -> None:
    with recording(tmp_path) as talk:
        talk.recorder.now = partial(earlier, 5)
        talk.reply(rounds=10)
        talk.recorder.now = time.time
        talk.reply(rounds=7)
    assert report_of(tmp_path, since("2h")).total.rounds == 7
    report = report_of(tmp_path)
    assert (report.total.rounds, len(report.by["time"])) == (17, 2)
    nothing = report_of(tmp_path, time.time() + 7200)
    assert terminal_view(nothing).startswith("nothing was recorded since ")
    assert "nothing was recorded" in html_page(nothing, 0.0)
    assert json.loads(as_json(nothing))["total"]["rounds"] == 0


@pytest.mark.parametrize(
    ("days", "since_s", "line"),
    [
        ([-1, 1, 1, 1, 1, 1], None, "since 1970-01-02: 1.80 tokens a round in 50 rounds; drafting \u00d71.20 (1.20 to 1.20)"),
        ([-1, 1, 5], 4.5 * 86400, "since 1970-01-06: 1.80 tokens a round in 10 rounds; average gain not known yet"),
        ([-1], None, "since 1970-01-01: they drafted nothing"),
    ],
)  # fmt: skip
def test_heads_are_counted_from_their_day(
    days: list[int], since_s: float | None, line: str
) -> None:
    def reply(number: int, at: float, draft_model: str) -> ReplyRecord:
        # Of 50 ms plain rounds take 20.
        spent = {"heads": (10, 30, 8, 18, 0, 0, 300_000, 0, 0, 0), "off": (30, 0, 0, 30, 0, 0, 600_000, 0, 0, 0)}  # fmt: skip
        cells: dict[str, dict[int, tuple[int, ...]]] = {each: {0: spent[each]} for each in spent}
        return ReplyRecord(86400 * at + 43200, Pair("t", draft_model), True, 50, id=number, cells=cells, plain_s=0.96)  # fmt: skip

    replies = {n: reply(n, day, "t-student") for n, day in enumerate(days)}
    replies |= {98: reply(98, -0.2, "t-student"), 99: reply(99, 1, "other")}  # before their day
    records = Records(replies, [], set(), [])
    report = make_report(records, since_s)
    add_trained(report, records, "t-student", "trained here, 1970-01-01", 40_000.0)
    for text in (terminal_view(report), terminal_view(report, every=False), html_page(report, 0)):
        assert "t-student: trained here, 1970-01-01" in text
        assert line in text
    (document,) = json.loads(as_json(report))["trained"]
    assert (document["name"], document["rounds"]) == ("t-student", report.trained["t-student"][1].by_heads.rounds)  # fmt: skip


def test_moments() -> None:
    for text, ago_s in (("12h", 12 * 3600), ("3d", 3 * 86400), ("4w", 28 * 86400)):
        assert since(text, 1e7) == 1e7 - ago_s
    assert since("2026-11-20T08:00:00+00:00") == 1795161600.0
    for text in ("yesterday", "", "7", "7m", "2026-13-01", "-3d", "9" * 30 + "d"):
        with pytest.raises(UsageError, match="not a time"):
            since(text)


class Page(HTMLParser):
    """Notes what a page is made of, and that every element is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.tags, self.attributes, self.open = set[str](), set[str](), list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_page_is_whole_and_fetches_and_runs_nothing(tmp_path: Path) -> None:
    with recording(tmp_path) as talk:
        talk.recorder.pair = Pair("<script>alert(1)</script>&", "")
        for hour in range(5):
            talk.recorder.now = partial(earlier, hour)
            talk.reply(rounds=60, acceptance=0.2 * hour)
    text = html_page(report_of(tmp_path), time.time())
    page = Page()
    page.feed(text)
    assert page.open == []
    assert not page.tags & {"script", "link", "img", "iframe", "object"}
    assert not page.attributes & {"src", "href", "onload", "onclick"}
    assert not any(each in text for each in ("http", "url(", "<script>alert"))
    for word in ("confidence", "by position", "by time", "speed-up", "▁", "█", "verify"):
        assert word in text


def test_second_choices_are_recorded_by_their_place_and_apart_from_drafts(tmp_path: Path) -> None:
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


def test_names_are_no_markup(tmp_path: Path) -> None:
    with recording(tmp_path) as talk:
        talk.recorder.pair = Pair("[bold]a[/] :smile:")
        talk.reply()
    assert "[bold]a[/] :smile:" in terminal_view(report_of(tmp_path))
    assert sparkline([0.0, None, 1.0], 0.0, 1.0) == "▁ █"
    assert sparkline([0.5, 0.5], 0.5, 0.5) == "██"
