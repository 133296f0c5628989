import msgspec
import pytest

from localspec.decoding.round import Draft, Round, Spent, Verdict
from localspec.tui.exchange import Exchange
from localspec.tui.stats import (
    filled,
    gauge,
    ribbon,
    split,
    split_bar,
    stats,
    stats_lines,
    status,
)
from tests.tui.answers import exchange, finished, plain, round_of


def text_of(line: list[tuple[str, str]]) -> str:
    return "".join(text for text, _ in line)


def test_acceptance_is_of_drafted_tokens() -> None:
    assert exchange(rounds=[round_of(4, 3), round_of(4, 1), plain()]).acceptance == 0.5
    assert exchange(rounds=[plain()]).acceptance is None


def test_the_ribbon_shows_the_last_rounds_between_one_token_and_the_most_by_who_drafted_them() -> (
    None
):
    rounds = [round_of(7, accepted) for accepted in range(8)]
    assert ribbon(rounds, 100) == [("▁▂▃▄▅▆▇█", "model")]
    assert ribbon(rounds, 3) == [("▆▇█", "model")]
    assert ribbon([plain(), round_of(3, 1), plain()], 9) == [
        ("▁", "off"),
        ("█", "model"),
        ("▁", "off"),
    ]
    assert ribbon([], 9) == []


def test_time_is_split_into_three_and_adds_up() -> None:
    draft, spent = Draft((7, 7), (0.5, 0.5), "model"), Spent(draft_s=1, verify_s=2, other_s=1)
    shares = split([Round(draft, Verdict(1, 8), (7, 8), spent)] * 5)
    assert shares == (0.25, 0.5, 0.25)
    assert split_bar(shares, 8) == [("██", "draft"), ("▒▒▒▒", "verify"), ("░░", "other")]
    assert split([]) is None
    for width in range(1, 40):
        assert len(text_of(split_bar((1 / 3, 1 / 3, 1 / 3), width))) == width


def test_the_gauge_marks_break_even_and_both_speed_ups_and_is_filled_between() -> None:
    assert text_of(gauge(None, None, 7)) == "\u00d7½ ──│──── \u00d74"
    assert gauge(1.5, 2.0, 7)[1:-1] == [("──", "dim"), ("│◇◆", "gain"), ("──", "dim")]
    assert gauge(None, 0.5, 7)[1:-1] == [("◆━│", "loss"), ("────", "dim")]
    assert text_of(gauge(0.1, 99.0, 7)) == "\u00d7½ ◇─│━━━◆ \u00d74"


def test_stats_without_an_answer_say_so() -> None:
    assert stats_lines(None, 80) == ["Nothing measured yet: ask something first."]
    assert stats_lines(Exchange(1, ()), 80) == ["Nothing measured yet: ask something first."]


def test_stats_tell_predicted_and_measured_speed_up_and_what_the_policy_says() -> None:
    done = exchange(rounds=[plain(0.02), round_of(3, 2, 0.05)] * 8)
    done.finished = finished(
        predicted_speed_up=1.25, note="drafting is off: it would cost 8 % here"
    )
    # Four tokens in the time of three and a half.
    told = "◆ \u00d71.14 (1.14 to 1.14) · ◇ \u00d71.25 predicted · │ break-even"
    lines = stats_lines(done, 80)
    assert lines[0] == f"speed-up  {told}"
    assert lines[-2:] == [
        "A drafted pass must yield 2.5 tokens to pay off; it yielded 3.0.",
        "drafting is off: it would cost 8 % here",
    ]
    assert any("model: 16 of 24 accepted (67%)" in each for each in lines)
    assert not any("second" in each for each in lines)
    draft = Draft((7, 7), (0.5,) * 2, "model", alternatives=((8, 9),) * 2, branches=(1, 0))
    caught = Round(draft, Verdict(0, 8, branch=8), (8, 8), Spent(verify_s=0.02))
    assert any(
        "second choices: 1 of 2 accepted" in each
        for each in stats_lines(exchange(rounds=[plain(), caught]), 80)
    )
    narrow = stats_lines(done, 36)
    assert narrow[0] == "speed-up"
    assert set(told.split(" · ")) <= set(narrow)


def test_the_ribbon_says_how_many_of_the_rounds_it_shows() -> None:
    assert any(
        "the last 70 of 200" in each for each in stats_lines(exchange(rounds=[plain()] * 200), 80)
    )
    assert any("all 5 · " in each for each in stats_lines(exchange(rounds=[plain()] * 5), 80))


def test_stats_say_how_to_measure_where_nothing_can_be_compared() -> None:
    told = "Not enough data to tell whether drafting helps; try /race."
    assert told in stats_lines(exchange(rounds=[round_of(3, 2)]), 80)
    without_drafts = stats_lines(exchange(rounds=[plain()] * 50), 80)
    assert without_drafts[-1] == "Nothing was drafted."
    assert "measure" not in "\n".join(without_drafts)
    done = exchange(rounds=[plain()] * 50)
    done.finished = msgspec.structs.replace(
        finished(), no_drafting="no drafting: would be slower here"
    )
    assert stats_lines(done, 80)[-1] == "No drafting: would be slower here."


@pytest.mark.parametrize("width", [20, 40, 80, 120])
def test_no_bar_is_wider_than_the_panel(width: int) -> None:
    done = exchange(rounds=[plain(), round_of(3, 2)] * 100)
    done.finished = finished(predicted_speed_up=1.25)
    bars = [
        line
        for line in stats(done, width)
        if {"off", "verify", "gain", "loss"} & {m for _, m in line}
    ]
    assert len(bars) >= 3
    assert all(len(text_of(bar)) <= max(width, 36) for bar in bars)


def test_the_status_line_gives_up_the_bar_before_the_figures_and_the_meter_last() -> None:
    done = exchange()
    done.finished = finished(tokens_per_s=20.0)
    assert status(done, 4000, 2000) == [
        "20.0 tokens/s · context 50% of 4000 ████░░░░",
        "20.0 tokens/s · context 50% of 4000 ██░░",
        "20.0 tokens/s · context 50% of 4000",
        "20.0 tokens/s · context 50%",
        "context 50%",
    ]
    assert status(done, None, 0) == ["20.0 tokens/s"]
    done.finished = msgspec.structs.replace(
        done.finished, no_drafting="no drafting: nothing to look up"
    )
    assert status(done, 4000, 2000)[3:5] == [
        "20.0 tokens/s · no drafting: nothing to look up · context 50%",
        "20.0 tokens/s · context 50% of 4000 ████░░░░",
    ]
    assert status(None, None, 0) == []


def test_a_cell_of_the_context_is_full_only_when_all_of_it_is() -> None:
    shares = (0.0, 0.5, 0.99, 1.2)
    assert [filled(each).count("█") for each in shares] == [0, 4, 7, 8]
    assert {len(filled(each)) for each in shares} == {8}
