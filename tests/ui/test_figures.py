import pytest

from localspec.decoding.round import Draft, Round, Spent, Verdict
from localspec.ui.exchange import Exchange
from localspec.ui.figures import (
    filled,
    gauge,
    lengths_bar,
    split,
    split_bar,
    stats_lines,
)
from tests.ui.answers import exchange, finished, plain, round_of


def test_acceptance_is_of_drafted_tokens() -> None:
    assert exchange(rounds=[round_of(4, 3), round_of(4, 1), plain()]).acceptance == 0.5
    assert exchange(rounds=[plain()]).acceptance is None


def test_the_sparkline_shows_the_last_rounds_between_one_token_and_the_most() -> None:
    rounds = [round_of(7, accepted) for accepted in range(8)]
    assert lengths_bar(rounds, 100) == "▁▂▃▄▅▆▇█"
    assert lengths_bar(rounds, 3) == "▆▇█"
    assert lengths_bar([plain()] * 3, 9) == "▁▁▁"
    assert lengths_bar([], 9) == ""


def test_time_is_split_into_three_and_adds_up() -> None:
    draft, spent = Draft((7, 7), (0.5, 0.5), "model"), Spent(draft_s=1, verify_s=2, other_s=1)
    shares = split([Round(draft, Verdict(1, 8), (7, 8), spent)] * 5)
    assert shares == (0.25, 0.5, 0.25)
    assert split_bar(shares, 8) == "██▒▒▒▒░░"
    assert split([]) is None


@pytest.mark.parametrize("width", range(1, 40))
def test_the_bar_is_as_wide_as_asked(width: int) -> None:
    assert len(split_bar((1 / 3, 1 / 3, 1 / 3), width)) == width


def test_the_gauge_marks_break_even_and_both_speed_ups() -> None:
    assert gauge(None, None, 7) == "\u00d7½ ──│──── \u00d72"
    assert gauge(1.5, 0.5, 7) == "\u00d7½ ◆─│─◇── \u00d72"
    assert gauge(0.1, 99.0, 7) == "\u00d7½ ◇─│───◆ \u00d72"


def test_stats_without_an_answer_say_so() -> None:
    assert stats_lines(None, 80) == ["Nothing was measured yet: ask something."]
    assert stats_lines(Exchange(1, ()), 80) == ["Nothing was measured yet: ask something."]


def test_stats_tell_predicted_and_measured_speed_up_and_what_the_policy_says() -> None:
    done = exchange(rounds=[plain(0.02), round_of(3, 2, 0.05)] * 8)
    done.finished = finished(
        predicted_speed_up=1.25, note="drafting is off: it would cost 8 % here"
    )
    lines = stats_lines(done, 80)
    # Four tokens in the time of three and a half.
    assert "speed-up: predicted ◇ \u00d7 1.25, measured ◆ \u00d7 1.14 (1.14 to 1.14)" in lines
    assert "break-even: a drafted round costs 2.50 plain ones; it confirms 3.00" in lines
    assert lines[3] == "drafting is off: it would cost 8 % here"


def test_stats_say_how_to_measure_where_nothing_can_be_compared() -> None:
    told = "too few rounds to compare drafted with plain ones: /race measures both"
    assert told in stats_lines(exchange(rounds=[round_of(3, 2)]), 80)
    without_drafts = "\n".join(stats_lines(exchange(rounds=[plain()] * 50), 80))
    assert "measure" not in without_drafts


@pytest.mark.parametrize("width", [20, 40, 80, 120])
def test_no_bar_is_wider_than_the_panel(width: int) -> None:
    done = exchange(rounds=[plain(), round_of(3, 2)] * 100)
    done.finished = finished(predicted_speed_up=1.25)
    bars = [line for line in stats_lines(done, width) if line.startswith("  ")]
    assert len(bars) == 3
    assert all(len(bar) <= width for bar in bars)


def test_a_cell_of_the_context_is_full_only_when_all_of_it_is() -> None:
    shares = (0.0, 0.5, 0.99, 1.2)
    assert [filled(each).count("█") for each in shares] == [0, 4, 7, 8]
    assert {len(filled(each)) for each in shares} == {8}
