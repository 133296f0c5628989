"""Processor time that the adaptive policy itself takes a round, in microseconds.

    python -m lab.benchmarks.policy_overhead [WORLD ...]

Runs the real loop in simulated worlds, and times all that the policy does in a round: planning,
deciding after each drafted token whether to go on, and learning. Wanted: 200 or less.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from localspec.decoding.drafter import Hindsight, Stopping
from localspec.decoding.model_drafter import ModelDrafter

from lab.benchmarks.workbench import machine
from lab.simulator.catalogue import build
from lab.simulator.contenders import ADAPTIVE
from lab.simulator.loop import run
from localspec.decoding.policy import Plan, Policy
from localspec.decoding.round import Round, Spent

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
class TimedStopping:
    """A `Stopping`, timed."""

    stopping: Stopping
    watch: Stopwatch

    @property
    def look_back(self) -> int:
        """As many as it says."""
        return self.stopping.look_back

    def begins(self, hindsight: Sequence[Hindsight]) -> bool:
        """Ask it, and count the time."""
        start = time.thread_time()
        begins = self.stopping.begins(hindsight)
        self.watch.round_s += time.thread_time() - start
        return begins

    def goes_on(self, gaps: Sequence[float]) -> bool:
        """Ask it, and count the time."""
        start = time.thread_time()
        goes_on = self.stopping.goes_on(gaps)
        self.watch.round_s += time.thread_time() - start
        return goes_on

    def keeps(self, gaps: Sequence[float]) -> int:
        """Ask it, and count the time."""
        start = time.thread_time()
        kept = self.stopping.keeps(gaps)
        self.watch.round_s += time.thread_time() - start
        return kept


@dataclass(frozen=True, slots=True)
class Timed:
    """A policy, timed."""

    policy: Policy
    watch: Stopwatch
    drafter_name: str = "auto"
    uses_draft_model: bool = True

    def begin(self, *, greedy: bool) -> None:
        """Begin a reply."""
        self.policy.begin(greedy=greedy)

    def plan(self, tokens: Sequence[int], room: int, lag: int) -> Plan:
        """Plan a round, and count the time."""
        start = time.thread_time()
        plan = self.policy.plan(tokens, room, lag)
        self.watch.round_s += time.thread_time() - start
        if isinstance(plan.drafter, ModelDrafter):
            stopping = TimedStopping(plan.drafter.stopping, self.watch)
            return replace(plan, drafter=replace(plan.drafter, stopping=stopping))
        return plan

    def learn(self, done: Round, spent: Spent) -> None:
        """Learn, count the time, and end the round."""
        start = time.thread_time()
        self.policy.learn(done, spent)
        self.watch.round_s += time.thread_time() - start
        self.watch.close()


def main() -> None:
    """Print mean and extremes by world."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("worlds", nargs="*", default=WORLDS)
    worlds = parser.parse_args().worlds
    print(machine())
    print(f"{'world':24} {'rounds':>7} {'mean us':>8} {'median':>7} {'99 %':>7} {'worst':>7}")
    for name in worlds:
        world, watch = build(name, 0), Stopwatch()
        run(world, Timed(ADAPTIVE.make(world), watch), ADAPTIVE.window(world))
        spent = 1e6 * np.array(watch.rounds_s)
        print(
            f"{name:24} {spent.size:7} {spent.mean():8.0f} {np.median(spent):7.0f} "
            f"{np.quantile(spent, 0.99):7.0f} {spent.max():7.0f}"
        )


if __name__ == "__main__":
    main()
