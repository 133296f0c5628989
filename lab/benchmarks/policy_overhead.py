"""Processor time that the adaptive policy itself takes a round, in microseconds.

    python -m lab.benchmarks.policy_overhead [WORLD ...]

Runs the real loop in simulated worlds, and times all that the policy does in a round: planning,
deciding after each drafted token whether to go on, and learning. Wanted: 150 or less.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np

from lab.benchmarks.workbench import machine
from lab.simulator.catalogue import build
from lab.simulator.contenders import adaptive
from lab.simulator.loop import run
from lab.simulator.pair import VirtualModel
from lab.simulator.world import World
from localspec.decoding.choose import Chooser
from localspec.decoding.drafters.backoff import Hindsight
from localspec.decoding.drafters.drafter import Plan
from localspec.decoding.drafters.early_stopping import EarlyStopping
from localspec.decoding.policy.policy import Policy
from localspec.decoding.round import Round

WORLDS = (
    "stationary-gpu-0.95", "bimodal-gpu", "bimodal-copy-gpu", "bimodal-copy-q4_k_m",
    "edit-q4_k_m", "repetitive-gpu", "deep-gpu", "hopeless-gpu",
)  # fmt: skip


@dataclass(slots=True)
class Stopwatch:
    """Adds up the seconds of a round."""

    round_s: float = 0.0
    rounds_s: list[float] = field(default_factory=list)

    def close(self) -> None:
        """End a round."""
        self.rounds_s.append(self.round_s)
        self.round_s = 0.0


@dataclass(frozen=True, slots=True)
class TimedStopping(EarlyStopping):
    """An `EarlyStopping`, timed."""

    watch: Stopwatch = field(default_factory=Stopwatch)

    def begins(self, hindsight: Sequence[Hindsight]) -> bool:
        """Ask it, and count the time."""
        start = time.thread_time()
        begins = EarlyStopping.begins(self, hindsight)
        self.watch.round_s += time.thread_time() - start
        return begins

    def goes_on(self, chances: Sequence[float]) -> bool:
        """Ask it, and count the time."""
        start = time.thread_time()
        goes_on = EarlyStopping.goes_on(self, chances)
        self.watch.round_s += time.thread_time() - start
        return goes_on

    def keeps(self, chances: Sequence[float]) -> int:
        """Ask it, and count the time."""
        start = time.thread_time()
        kept = EarlyStopping.keeps(self, chances)
        self.watch.round_s += time.thread_time() - start
        return kept


@dataclass(frozen=True, slots=True)
class Timed:
    """A policy, timed."""

    policy: Policy
    watch: Stopwatch
    name: str = "auto"

    def begin(self, tokens: Sequence[int], chooser: Chooser) -> None:
        """Begin a reply."""
        self.policy.begin(tokens, chooser)

    def plan(self, tokens: Sequence[int], room: int) -> Plan:
        """Plan a round, and count the time."""
        start = time.thread_time()
        plan = self.policy.plan(tokens, room)
        self.watch.round_s += time.thread_time() - start
        if plan.stopping is None:
            return plan
        known = {each.name: getattr(plan.stopping, each.name) for each in fields(plan.stopping)}
        return replace(plan, stopping=TimedStopping(**known, watch=self.watch))

    def learn(self, done: Round) -> None:
        """Learn, count the time, and end the round."""
        start = time.thread_time()
        self.policy.learn(done)
        self.watch.round_s += time.thread_time() - start
        self.watch.close()

    def end(self) -> None:
        """End a reply."""
        self.policy.end()


def main() -> None:
    """Print mean and extremes by world."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("worlds", nargs="*", default=WORLDS)
    worlds = parser.parse_args().worlds
    print(machine())
    print(f"{'world':24} {'rounds':>7} {'mean us':>8} {'median':>7} {'99 %':>7} {'worst':>7}")
    for name in worlds:
        watch = Stopwatch()

        def timed(world: World, draft_model: VirtualModel, watch: Stopwatch = watch) -> Policy:
            return Timed(adaptive(world, draft_model), watch)

        run(build(name, 0), timed)
        spent = 1e6 * np.array(watch.rounds_s)
        print(
            f"{name:24} {spent.size:7} {spent.mean():8.0f} {np.median(spent):7.0f} "
            f"{np.quantile(spent, 0.99):7.0f} {spent.max():7.0f}"
        )


if __name__ == "__main__":
    main()
