"""Whether `bench --compare` finds an arm that was slowed on purpose, on this machine as it is.

    python -m lab.benchmarks.compare_slowed TARGET [SHARE ...]

Both arms are plain decoding of one model that is loaded once. Passes of arm b take SHARE longer: it spins after each.
A share of 0 is an A/A comparison, which should find nothing. Also told: the noise of a pair.
"""

import argparse
import statistics
import time
from collections.abc import Sequence

from lab.benchmarks.workbench import machine, opened
from localspec.bench.bench import log_ratio, neighbours
from localspec.bench.estimate import FIRST_PAIRS, compare, pairs_needed
from localspec.bench.measure import OwnRuns, Runs, measure, schedule
from localspec.bench.prompts import bundled, per_workload
from localspec.bench.trial import Slot, Trial
from localspec.decoding.model import Logits, Pass, Role
from localspec.decoding.scheduler import Sequences
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions


class Slowed:
    """Sequences whose passes take longer than they do."""

    def __init__(self, within: Sequences) -> None:
        self._within = within
        self.share = 0.0

    def __getattr__(self, name: str) -> object:
        return getattr(self._within, name)

    def together(self, asked: Sequence[tuple[int, Pass]]) -> Sequence[Logits]:
        """Take the pass, and spin."""
        start = time.perf_counter()
        found = self._within.together(asked)
        end = time.perf_counter() + self.share * (time.perf_counter() - start)
        while time.perf_counter() < end:
            pass
        return found


class SlowRuns:
    """Runs whose passes are slowed while they are made."""

    def __init__(self, runs: OwnRuns, model: Slowed, share: float) -> None:
        self._runs, self._model, self._share = runs, model, share

    def run(self, slot: Slot) -> Trial:
        """Make it."""
        self._model.share = self._share
        try:
            return self._runs.run(slot)
        finally:
            self._model.share = 0.0

    def warm_up(self, modes: Sequence[str]) -> None:
        """Do nothing: the other arm has the same weights."""


def _planned(trials: Sequence[Trial]) -> int:
    first = len(trials) == 2 * FIRST_PAIRS
    return 2 * pairs_needed([*map(log_ratio, neighbours(trials, "a"))]) if first else 0


def main() -> None:
    """Compare, and print a line for each share."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target")
    parser.add_argument("shares", nargs="*", type=float, default=[0.0, 0.06])
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    print(machine())
    launch = LaunchOptions(
        target=arguments.target, draft="off", load=LoadOptions(threads=arguments.threads)
    )
    runtime = opened(launch)
    driven = runtime.assistant._scheduler._models  # noqa: SLF001 - slowed behind everybody's back
    slowed = driven[Role.TARGET] = Slowed(driven[Role.TARGET])  # type: ignore[index]
    prompts = per_workload(bundled(), 2)
    asked = ReplyOptions(seed=1, max_tokens=arguments.tokens)
    side = OwnRuns(runtime.assistant, lambda _: runtime.drafting.policy("off"), prompts, asked)
    for share in arguments.shares:
        start, slots = time.perf_counter(), schedule(len(prompts), ["a", "b"], [0.8], None)
        runs: dict[str, Runs] = {"a": side, "b": SlowRuns(side, slowed, share)}
        trials, _ = measure(slots, runs, 2 * FIRST_PAIRS, more=_planned)
        values = [*map(log_ratio, neighbours(trials, "a"))]
        found = compare(values)
        print(
            f"passes {share:.0%} longer: {found.verdict('a', 'b')}; noise of a pair "
            f"{statistics.stdev(values):.1%}; {time.perf_counter() - start:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
