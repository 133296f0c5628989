"""Where more run at once, drafting narrows before anybody has to wait: in worlds where every draft would be right."""

from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from localspec.decoding.cancel import CancelFlag
from localspec.decoding.choose import Chooser
from localspec.decoding.costs import PassCosts
from localspec.decoding.drafters.lookup import LookupDrafter
from localspec.decoding.generation import Generation, Limits
from localspec.decoding.model import Role
from localspec.decoding.noise import Noise
from localspec.decoding.policy import AdaptivePolicy, FixedPolicy, Policy, Sharing, plain_policy
from localspec.decoding.scheduler import Scheduler
from localspec.options import SamplingParams
from tests.toy import CachedModel, Reply, Stopwatch, Table, ToySequences, to_its_end

CYCLE = 8
KNEE = PassCosts((1, 8, 64), (1.0, 1.2, 9.6))
"""Eight rows cost hardly more than one, and from there on each costs as much as the one before."""
LINEAR = PassCosts((1, 64), (1.0, 64.0))


def counting() -> Table:
    rows = np.zeros((61, CYCLE + 1), dtype=np.float32)
    for token in range(CYCLE + 1):
        rows[token + 1, token % CYCLE + 1] = np.log(3 * CYCLE)
    return Table(rows, window=1)


@cache
def said_by(count: int, costs: PassCosts, kind: str, said: int = 200) -> tuple[float, float]:
    """Return what so many say at once: tokens drafted a round, and confirmed a second, by a clock that goes on by what passes cost."""
    clock, sharing = Stopwatch(0.0), Sharing()
    views = [CachedModel(counting(), 400) for _ in range(count)]
    sequences = ToySequences(views)

    def on_pass() -> None:
        for widths in sequences.passes[:]:
            clock.now_s += merged_s(costs, list(widths.values()))
        sequences.passes.clear()

    sequences.on_pass = on_pass
    scheduler = Scheduler[Reply]({Role.TARGET: sequences}, CancelFlag(), clock)
    made: list[Policy] = []
    for slot, view in enumerate(views):
        policies: dict[str, Policy] = {
            "auto": AdaptivePolicy(costs, 31, [LookupDrafter(())], 0, sharing, slot),
            "off": plain_policy(sharing, slot),
            "always": FixedPolicy(LookupDrafter(()), 7, sharing, slot),
        }
        made.append(policies[kind])
        prompt = [(slot + i) % CYCLE + 1 for i in range(6 * CYCLE)]
        chooser = Chooser(SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0), Noise(slot))
        generation = Generation(prompt, view, made[slot], chooser, Limits(said, ()), clock)
        scheduler.start(slot, to_its_end(generation))
    replies = []
    while scheduler.running:
        for ended in scheduler.step():
            assert ended.value is not None
            replies.append(ended.value)
            made[ended.slot].end()
    rounds = [each for reply in replies for each in reply.rounds[1:]]
    prefill_s = merged_s(costs, [6 * CYCLE]) * count
    drafted = sum(each.drafted for each in rounds) / len(rounds)
    return drafted, count * said / (clock.now_s - prefill_s)


def merged_s(costs: PassCosts, widths: Sequence[int]) -> float:
    """Return the seconds of a pass of several sequences: what some have more than others is evaluated after it."""
    seconds, done = 0.0, 0
    for width in sorted(set(widths)):
        seconds += costs.of(sum(each >= width for each in widths) * (width - done))
        done = width
    return seconds


def test_one_drafts_and_one_of_eight_does_not() -> None:
    assert said_by(1, KNEE, "auto", said=60)[0] > 2
    assert said_by(8, KNEE, "auto", said=120)[0] < 0.1
    assert [said_by(count, LINEAR, "auto", said=40)[0] for count in (1, 4)] == [0, 0]


@pytest.mark.slow
def test_the_more_run_the_less_is_drafted_until_nothing_is_which_costs_nobody_much() -> None:
    drafted = []
    for count in (1, 2, 4, 8):
        plain, always, auto = (said_by(count, KNEE, kind) for kind in ("off", "always", "auto"))
        drafted.append(auto[0])
        assert auto[1] >= 0.9 * max(plain[1], always[1])
    assert auto[1] > 2 * always[1], "a drafter that goes on regardless holds up all"
    assert drafted[0] > 3
    assert drafted[-1] < 0.1
    assert all(later <= earlier + 0.1 for earlier, later in pairwise(drafted))
