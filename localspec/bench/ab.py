"""A/B: two arms answer the same prompts in pairs, and the ratio of their speeds is told with its interval."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from random import Random

from localspec.bench.arms import Arm
from localspec.bench.loading import BenchModels, Watchers, load
from localspec.bench.own import OwnRuns
from localspec.bench.paired import FIRST_PAIRS, Comparison, compare, pairs_needed
from localspec.bench.prompts import Prompt
from localspec.bench.schedule import Slot
from localspec.bench.trial import Trial, speed_ratio
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.errors import UsageError
from localspec.options import ReplyOptions

LEAST_PAIRS = 5
OnTrial = Callable[[int, int, Trial], None]


@dataclass(frozen=True, slots=True)
class Ab:
    """What to compare.

    Args:
        a: one arm.
        b: the other.
        prompts: what to answer.
        asked: how every answer is made; the seed is of the first round.
        pairs: how many pairs; None lets the noise of the first ones decide.
    """

    a: Arm
    b: Arm
    prompts: Sequence[Prompt]
    asked: ReplyOptions
    pairs: int | None = None

    def __post_init__(self) -> None:
        if self.pairs is not None and self.pairs < LEAST_PAIRS:
            raise UsageError(f"pairs is {self.pairs}: give {LEAST_PAIRS} or more")


@dataclass(frozen=True, slots=True)
class TrialPair:
    """One prompt, answered by both."""

    workload: str
    a: Trial
    b: Trial

    @property
    def value(self) -> float:
        """Logarithm of how many times as fast as a b was, at equal lengths."""
        return math.log(speed_ratio(self.b, self.a))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it.

    Args:
        pairs: in their order.
        comparison: what they say; None where it was interrupted before there were enough.
        planned: how many pairs there were to be.
    """

    pairs: Sequence[TrialPair]
    comparison: Comparison | None
    planned: int


class LoadedArm:
    """An arm that is loaded.

    Args:
        runs: answers prompts.
        mode: what drafts.
    """

    def __init__(self, runs: OwnRuns, mode: str) -> None:
        self._runs = runs
        self._mode = mode

    def warm_up(self) -> None:
        """Answer once, untimed: the first pass of a width costs more."""
        self._runs.warm_up([self._mode])

    def run(self, prompt: int, temperature: float, repeat: int) -> Trial:
        """Answer a prompt, from empty caches and without memories."""
        return self._runs.run(Slot(prompt, temperature, repeat, self._mode, 0))


def run_ab(
    ab: Ab, cancel: CancelFlag, watchers: Watchers, on_trial: OnTrial = lambda *_: None
) -> Outcome:
    """Load both arms, answer in pairs, and return what was found; of the pairs before `cancel` was set, if it is.

    Raises:
        LocalspecError: something cannot be loaded or answered.
        Cancelled: `cancel` was set while loading.
    """
    with ExitStack() as stack:
        a, b = _sides(ab, cancel, watchers, stack)
        pairs: list[TrialPair] = []
        planned = ab.pairs or FIRST_PAIRS
        try:
            a.warm_up()
            b.warm_up()
            for pair in paired_runs(ab, a, b):
                pairs.append(pair)
                on_trial(2 * len(pairs), 2 * planned, pair.b)
                if ab.pairs is None and len(pairs) == FIRST_PAIRS:
                    planned = pairs_needed([each.value for each in pairs])
                if len(pairs) == planned:
                    break
        except Cancelled:
            pass
    enough = len(pairs) >= LEAST_PAIRS
    return Outcome(pairs, compare([each.value for each in pairs]) if enough else None, planned)


def paired_runs(ab: Ab, a: LoadedArm, b: LoadedArm, seed: int = 0) -> Iterator[TrialPair]:
    """Yield pairs without an end: all prompts in a mixed order, then again with other seeds.

    Of two pairs that follow each other, a goes first in one, and b in the other.
    """
    rng = Random(seed)  # noqa: S311 - an order, no secret
    repeat, b_first = 0, False
    while True:
        for at, prompt in enumerate(rng.sample(range(len(ab.prompts)), len(ab.prompts))):
            b_first = rng.random() < 0.5 if at % 2 == 0 else not b_first
            sides = (b, a) if b_first else (a, b)
            trials = [side.run(prompt, ab.asked.sampling.temperature, repeat) for side in sides]
            of_a, of_b = reversed(trials) if b_first else trials
            yield TrialPair(ab.prompts[prompt].workload, of_a, of_b)
        repeat += 1


def _sides(
    ab: Ab, cancel: CancelFlag, watchers: Watchers, stack: ExitStack
) -> tuple[LoadedArm, LoadedArm]:
    def loaded(arm: Arm, modes: Sequence[str]) -> BenchModels:
        found = load(arm.models, modes, None, cancel, watchers)
        stack.callback(found.assistant.close)
        return found

    def side(of: BenchModels, arm: Arm) -> LoadedArm:
        return LoadedArm(OwnRuns(of.assistant, of.policy, ab.prompts, ab.asked), arm.mode)

    if ab.a.models == ab.b.models:
        both = loaded(ab.a, [ab.a.mode, ab.b.mode])
        return side(both, ab.a), side(both, ab.b)
    return side(loaded(ab.a, [ab.a.mode]), ab.a), side(loaded(ab.b, [ab.b.mode]), ab.b)
