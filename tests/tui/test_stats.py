import msgspec
import pytest

from localspec.chat.events import Forecast
from localspec.decoding.round import Draft, Round, Spent, Verdict
from localspec.tui.stats import gained, ribbon, split, split_bar, stats, stats_lines, status
from tests.tui.answers import exchange, finished, plain, round_of


def text_of(line: list[tuple[str, str]]) -> str:
    return "".join(text for text, _ in line)


def test_the_ribbon_shows_the_last_rounds_between_one_token_and_the_most_by_who_drafted_them() -> (
    None
):
    rounds = [round_of(7, accepted) for accepted in range(8)]
    assert ribbon(rounds, 100) == [("▁▂▃▄▅▆▇█", "model")]
    assert ribbon(rounds, 3) == [("▆▇█", "model")]
    mixed = ribbon([plain(), round_of(3, 1), plain()], 9)
    assert mixed == [("▁", "off"), ("█", "model"), ("▁", "off")]
    assert ribbon([], 9) == []


def test_time_is_split_into_three_and_adds_up() -> None:
    draft, spent = Draft((7, 7), (0.5, 0.5), "model"), Spent(draft_s=1, verify_s=2, other_s=1)
    shares = split([Round(draft, Verdict(1, 8), (7, 8), spent)] * 5)
    assert shares == [0.25, 0.5, 0.25]
    assert split_bar(shares, 8) == [("██", "draft"), ("▒▒▒▒", "verify"), ("░░", "other")]
    assert split([]) is None
    for width in range(1, 40):
        assert len(text_of(split_bar([1 / 3, 1 / 3, 1 / 3], width))) == width


def test_stats_show_speed_ups_drafts_and_what_the_policy_notes() -> None:
    nothing = ["Nothing measured yet: ask something first."]
    assert stats_lines(None, 80) == stats_lines(exchange(), 80) == nothing
    done = exchange(rounds=[plain(0.02), round_of(3, 2, 0.05)] * 8)
    assert stats_lines(done, 80)[0] == "steps     all 16 · 2.00 tokens per step"
    note = "drafting is off: it would cost 8 % here"
    done.finished = finished(forecast=Forecast(1.25, 1.14, note))
    lines = stats_lines(done, 80)
    assert lines[0] == "speed-up  \u00d71.14 measured · \u00d71.25 predicted"
    assert "drafts    ■ model: 16 of 24 accepted (67%)" in lines
    assert lines[-2:] == [note, f"Not enough data yet{UNKNOWN}"]
    draft = Draft((7, 7), (0.5,) * 2, "model", alternatives=((8, 9),) * 2, branches=(1, 0))
    caught = Round(draft, Verdict(0, 8, branch=8), (8, 8), Spent(verify_s=0.02))
    branched = stats_lines(exchange(rounds=[plain(), caught]), 80)
    assert any("accepted (0%), and 1 of 2 second choices" in each for each in branched)
    done.finished = finished(no_drafting="no drafting: slower here")
    assert stats_lines(done, 80)[-2] == "No drafting: slower here."


UNKNOWN = " to tell whether drafting helps; /race measures both."


@pytest.mark.parametrize(
    ("gains", "sentence"),
    [
        ([1.2] * 5, f"Not enough data yet{UNKNOWN}"),
        ([1.1, 1.2, 1.3] * 4, "Drafting: 1.20\u00d7 (1.14 to 1.26) over 12 answers"),
        ([0.8, 1.3] * 4, "Drafting: 1.02\u00d7 (0.81 to 1.29) over 8 answers: no clear difference"),
        ([0.8, 0.9] * 4, "Drafting: 0.85\u00d7 (0.80 to 0.90) over 8 answers"),
    ],
)
def test_what_drafting_gained_has_an_interval_once_there_is_enough(
    gains: list[float], sentence: str
) -> None:
    assert gained(gains) == sentence


@pytest.mark.parametrize("width", [20, 40, 80, 120])
def test_no_bar_is_wider_than_the_panel_and_many_rounds_are_counted(width: int) -> None:
    done = exchange(rounds=[plain(), round_of(3, 2)] * 100)
    bars = [line for line in stats(done, width) if {"off", "verify"} & {m for _, m in line}]
    assert bars
    assert all(len(text_of(bar)) <= width or "large model" in text_of(bar) for bar in bars)
    assert any(f"the last {min(width, 72)} of 200" in each for each in stats_lines(done, width))


def test_the_status_line_gives_up_the_bar_before_the_figures_and_the_meter_last() -> None:
    done = exchange()
    done.finished = finished(tokens_per_s=20.0)
    forms = [
        "20.0 tokens/s · context 50% of 4000 ████░░░░",
        "20.0 tokens/s · context 50% of 4000",
        "20.0 tokens/s · context 50%",
        "context 50%",
    ]
    assert status(done, 4000, 2000)[1:] == forms
    assert status(done, None, 0)[-1] == "20.0 tokens/s"
    why = "no drafting: nothing to look up"
    done.finished = msgspec.structs.replace(done.finished, no_drafting=why)
    assert status(done, 4000, 2000)[0] == f"20.0 tokens/s · {why} · {forms[0][16:]}"
    assert status(done, 4000, 2000)[1:] == forms
    shares = (0, 2000, 3999, 4800)
    assert [status(None, 4000, each)[0].count("█") for each in shares] == [0, 4, 7, 8]
