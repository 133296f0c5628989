"""Changes of acceptance in worlds where it is known whether there was one."""

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from localspec.telemetry.drift import MOST_REPLIES, Drift, Rate, find_drift
from localspec.telemetry.log import FILE, read_prior, read_records
from localspec.telemetry.view import shift_line
from tests.telemetry.talking import PAIR, recording


def world(
    seed: int, rates: list[tuple[int, float]], *, correlation: float = 0.0, usual: int = 100
) -> list[Rate]:
    """Return the rates of replies, three drafted tokens a round, of chances of acceptance for so many rounds.

    A reply's moment is its first round; with a `correlation` it draws a chance of its own; it has `usual` rounds or so.
    """
    rng = np.random.default_rng(seed)
    size = (1 - correlation) / correlation if correlation else 0.0
    found, begun = list[Rate](), 0
    for rounds, rate in rates:
        end = begun + rounds
        while begun < end:
            count = min(int(rng.geometric(1 / usual)), end - begun)
            own = float(rng.beta(rate * size, (1 - rate) * size)) if size else rate
            draws = rng.random((count, 3)) < own
            accepted = np.where(draws.all(1), 3, np.argmin(draws, 1))
            judged = np.minimum(accepted + 1, 3)
            found.append(Rate(float(begun), int(judged.sum()), int(accepted.sum())))
            begun += count
    return found


def changes(replies: list[Rate]) -> list[tuple[float, Drift]]:
    """Return at which reply what was found."""
    found, since_s = list[tuple[float, Drift]](), 0.0
    for at in range(len(replies)):
        window = replies[max(0, at + 1 - MOST_REPLIES) : at + 1]
        drift = find_drift([each for each in window if each.at >= since_s])
        if drift is not None:
            found.append((replies[at].at, drift))
            since_s = drift.since_s
    return found


def replies_until(replies: list[Rate], since: float) -> int:
    """Return how many replies that began since a round were there before a change was found; 99 if none was."""
    found = [at for at, _ in changes(replies) if at >= since]
    return sum(since <= each.at <= found[0] for each in replies) if found else 99


@pytest.mark.parametrize("correlation", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("rate", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("usual", [20, 100])
def test_stationary_rounds_raise_no_alarm(correlation: float, rate: float, usual: int) -> None:
    """3 of 142,872 replies in all worlds of four seeds."""
    assert len(changes(world(3, [(50_000, rate)], correlation=correlation, usual=usual))) <= 1


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("before", "after"), [(0.85, 0.6), (0.8, 0.3), (0.6, 0.9)])
def test_swap_is_reported_within_six_replies(seed: int, before: float, after: float) -> None:
    replies = world(seed, [(5000, before), (3000, after)])
    assert replies_until(replies, 5000) <= 6
    drift = next(drift for at, drift in changes(replies) if at >= 5000)
    assert abs(drift.since_s - 5000) <= 100, "a reply"
    assert drift.before == pytest.approx(before, abs=0.03)
    assert drift.after == pytest.approx(after, abs=0.1)


@pytest.mark.parametrize(
    ("before", "after", "correlation", "most"),
    [(0.85, 0.7, 0.0, 9), (0.85, 0.3, 0.02, 6), (0.85, 0.6, 0.05, 14)],
)
def test_smaller_swap_needs_more(
    before: float, after: float, correlation: float, most: int
) -> None:
    rates = [(5000, before), (3000, after)]
    worlds = (world(seed, rates, correlation=correlation) for seed in range(8))
    assert max(replies_until(each, 5000) for each in worlds) <= most


def test_few_or_short_replies_show_nothing() -> None:
    assert find_drift([]) is None
    assert find_drift([Rate(n, 100, 90) for n in range(13)]) is None
    assert find_drift([Rate(n, 100, 90 if n < 10 else 20) for n in range(13)]) is None
    drift = find_drift([Rate(n, 100, 90 if n < 10 else 20) for n in range(14)])
    assert drift == Drift(10, 0.9, 0.2)
    assert find_drift([Rate(n, 9, 9 if n < 30 else 0) for n in range(50)]) is None


def prior_of(
    directory: Path, now_s: float, workload: str = "code", *, greedy: bool = False
) -> dict[str, Mapping[int, tuple[float, float]]]:
    return read_prior(directory, PAIR, workload, greedy=greedy, now_s=now_s)


def test_change_is_recorded_reported_and_leaves_the_past_out_of_the_prior(tmp_path: Path) -> None:
    moment = [time.time() - 120 * 600]
    with recording(tmp_path, workload="code") as talk:
        talk.recorder.now = lambda: moment[0]
        for number in range(120):
            talk.reply(rounds=60, acceptance=0.9 if number < 100 else 0.2)
            moment[0] += 600
    (shift,) = read_records(tmp_path).shifts
    assert shift.before == pytest.approx(0.9, abs=0.02)
    assert shift.after == pytest.approx(0.2, abs=0.1)
    assert "acceptance of model on code fell from 91% to 24%" in shift_line(shift)
    prior = prior_of(tmp_path, moment[0])["model"]
    assert prior.keys() == {3, 4, 5}
    rate, weight = prior[3]
    assert rate == pytest.approx(0.2, abs=0.06)
    assert 100 < weight < 1200
    assert prior_of(tmp_path, moment[0], "chat") == {}
    assert prior_of(tmp_path, moment[0], greedy=True) == {}


def test_prior_weighs_older_replies_less(tmp_path: Path) -> None:
    now_s = time.time()
    assert prior_of(tmp_path, now_s) == {}
    with recording(tmp_path, workload="code") as talk:
        talk.reply(rounds=50, acceptance=1.0)
    weights = [prior_of(tmp_path, now_s + days * 86400)["model"][3][1] for days in (0, 30)]
    assert weights == pytest.approx([40, 20], rel=1e-3)
    (tmp_path / FILE).write_bytes(b"nonsense of some length, at least of a page" * 200)
    assert prior_of(tmp_path, now_s) == {}
