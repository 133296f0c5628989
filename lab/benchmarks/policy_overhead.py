"""Processor time that policy and scheduler take a round, in microseconds.

    python -m lab.benchmarks.policy_overhead [WORLD ...]

Runs the real loop in simulated worlds. The policy plans, decides after each drafted token whether to
go on, and learns; the scheduler does what lies between what asks for passes and the models that make
them. Neither models nor choosing tokens are counted, nor what the stopwatches add. Wanted: 150 or less.
"""

import argparse
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import numpy as np

from lab.benchmarks.workbench import machine
from lab.simulator.alone import Alone
from lab.simulator.catalogue import build
from lab.simulator.contenders import adaptive
from lab.simulator.loop import Watched, run
from lab.simulator.pair import VirtualModel
from lab.simulator.world import World
from localspec.decoding.drafters.model import GrowingDraft
from localspec.decoding.drafters.worth import Worth
from localspec.decoding.policy import AdaptivePolicy
from localspec.decoding.round import Round
from localspec.decoding.scheduler import Scheduler

WORLDS = (
    "stationary-gpu-0.95", "bimodal-gpu", "bimodal-copy-gpu", "bimodal-copy-q4_k_m",
    "edit-q4_k_m", "repetitive-gpu", "deep-gpu", "hopeless-gpu",
)  # fmt: skip


class Stopwatch:
    """Adds up the seconds of a thread's processor in some functions; one that another of them calls is part of that."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.calls = 0
        self.inside = False

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, timed."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if self.inside:
                return function(*args, **kwargs)
            self.inside, start = True, time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.thread_time() - start - _READING_S
                self.calls += 1
                self.inside = False

        return call


class Asking:
    """What asks for passes, timed: its time is not the scheduler's.

    Args:
        asking: the generator.
        watch: counts it, and the models that the scheduler asks.
    """

    def __init__(self, asking: Any, watch: Stopwatch) -> None:
        self.send, self.throw = watch.timed(asking.send), watch.timed(asking.throw)
        self.close = asking.close
        self._next = watch.timed(asking.__next__)

    def __next__(self) -> Any:
        """Return its first request."""
        return self._next()


def reading_s() -> float:
    """Return the seconds that reading the clock adds to what is timed."""
    start = time.thread_time()
    for _ in range(9_999):
        time.thread_time()
    return (time.thread_time() - start) / 10_000


_READING_S = reading_s()


def timing_s() -> float:
    """Return the seconds that one stopwatch sees of a call that another one times, beyond what that one counts."""
    outer, inner, bare = Stopwatch(), Stopwatch(), Stopwatch()
    count = 20_000

    def many(function: Callable[..., Any]) -> None:
        for _ in range(count):
            function()

    outer.timed(many)(inner.timed(int))
    bare.timed(many)(int)
    return (outer.seconds - inner.seconds - bare.seconds) / count


_TIMING_S = timing_s()


def overhead(world: World) -> tuple[list[float], list[float], float]:
    """Return the seconds of policy and of scheduler in each round, and the drafted tokens a round."""
    policy, stepping, outside, asked = Stopwatch(), Stopwatch(), Stopwatch(), Stopwatch()
    ended: list[tuple[float, float]] = []
    drafted: list[int] = []
    start, step, learn = Scheduler.start, Scheduler.step, Watched.learn

    def timed_start(scheduler: Any, slot: int, asking: Any) -> Any:
        return start(scheduler, slot, Asking(asking, outside))  # type: ignore[arg-type]

    def counted(watched: Watched, done: Round) -> None:
        learn(watched, done)
        drafted.append(done.drafted)

    timed_step = stepping.timed(step)
    compare = VirtualModel.common_prefix
    of_policy, of_others = asked.timed(compare), outside.timed(compare)

    def compared(*args: Any) -> Any:
        return (of_policy if policy.inside else of_others)(*args)

    def one_step(scheduler: Any) -> Any:
        done = timed_step(scheduler)
        own_s = stepping.seconds - outside.seconds - outside.calls * _TIMING_S
        policy_s = policy.seconds - asked.seconds - asked.calls * _TIMING_S
        ended.append((policy_s, own_s))
        return done

    places = [
        (policy, AdaptivePolicy, "plan"), (policy, AdaptivePolicy, "learn"),
        (policy, Worth, "__init__"), (policy, Worth, "add"),
        (outside, Alone, "missing"), (outside, Alone, "evaluate"), (outside, Alone, "together"),
        (outside, GrowingDraft, "__call__"),
    ]  # fmt: skip
    with ExitStack() as patched:
        for watch, owner, name in places:
            timed = watch.timed(getattr(owner, name))
            patched.enter_context(patch.object(owner, name, timed))
        patched.enter_context(patch.object(VirtualModel, "common_prefix", compared))
        patched.enter_context(patch.object(Scheduler, "start", timed_start))
        patched.enter_context(patch.object(Scheduler, "step", one_step))
        patched.enter_context(patch.object(Watched, "learn", counted))
        run(world, adaptive)
    spent = np.diff(np.array(ended), axis=0)
    return list(spent[:, 0]), list(spent[:, 1]), float(np.mean(drafted))


def main() -> None:
    """Print medians by world."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("worlds", nargs="*")
    asked = parser.parse_args()
    print(machine())
    worlds = asked.worlds or WORLDS
    print(f"{'world':24} {'drafted':>7} {'policy':>7} {'scheduler':>9} {'both':>7} {'90 %':>7}")
    for name in worlds:
        policy, scheduler, drafted = (np.array(each) for each in overhead(build(name, 0)))
        both = policy + scheduler
        medians = [1e6 * np.median(each) for each in (policy, scheduler, both)]
        print(
            f"{name:24} {drafted:7.1f} {medians[0]:7.0f} {medians[1]:9.0f} {medians[2]:7.0f} "
            f"{1e6 * np.quantile(both, 0.9):7.0f}"
        )


if __name__ == "__main__":
    main()
