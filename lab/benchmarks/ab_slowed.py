"""Whether `ab` finds an arm that was slowed on purpose, on this machine as it is.

    python -m lab.benchmarks.ab_slowed TARGET [SHARE ...]

Both arms are plain decoding of one model that is loaded once. Passes of arm b take SHARE longer: it spins after each.
A share of 0 is an A/A comparison, which should find nothing. Also told: the noise of a pair.
"""

import argparse
import statistics
import time
from collections.abc import Sequence

from lab.benchmarks.workbench import machine, opened
from localspec.bench.ab import Ab, LoadedArm, paired_runs
from localspec.bench.arms import parse_arm
from localspec.bench.own import OwnRuns
from localspec.bench.paired import FIRST_PAIRS, compare, pairs_needed
from localspec.bench.prompts import bundled, per_workload
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


class SlowSide:
    """An arm whose passes are slowed while it runs."""

    def __init__(self, side: LoadedArm, model: Slowed, share: float) -> None:
        self._side, self._model, self._share = side, model, share

    def run(self, prompt: int, temperature: float, repeat: int) -> object:
        """Run it."""
        self._model.share = self._share
        try:
            return self._side.run(prompt, temperature, repeat)
        finally:
            self._model.share = 0.0


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
    arm = parse_arm("off", launch)
    request = Ab(arm, arm, prompts, asked)
    side = LoadedArm(OwnRuns(runtime.assistant, runtime.drafting.policy, prompts, asked), "off")
    side.warm_up()
    for share in arguments.shares:
        start, values, planned = time.perf_counter(), list[float](), FIRST_PAIRS
        for pair in paired_runs(request, side, SlowSide(side, slowed, share)):  # type: ignore[arg-type]
            values.append(pair.value)
            if len(values) == FIRST_PAIRS:
                planned = pairs_needed(values)
            if len(values) >= planned:
                break
        found = compare(values)
        print(
            f"passes {share:.0%} longer: {found.verdict('a', 'b')}; noise of a pair "
            f"{statistics.stdev(values):.1%}; {time.perf_counter() - start:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
