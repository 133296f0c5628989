"""Runs the real loop in a simulated world, and compares what it took with other ways.

Seconds here are the *expected* ones of the passes that were made: the policy sees a clock with
jitter, the comparison does not. Policies are compared on the same coins, so that what differs
between two runs of a world is what the policies did.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from localspec.decoding.cancel import CancelFlag
from localspec.decoding.choose import Chooser
from localspec.decoding.drafters.drafter import Plan
from localspec.decoding.generation import Generation, Limits
from localspec.decoding.model import Pass, Passed, Role
from localspec.decoding.policy import Policy
from localspec.decoding.round import Round, StopReason
from localspec.decoding.scheduler import Scheduler
from tests.decoding.simulator.contenders import Contender
from tests.decoding.simulator.pair import Alone, Machine, VirtualModel
from tests.decoding.simulator.world import World

WARM_UP = 300
WINDOW = 500

Seconds = NDArray[np.float64]
"""Expected seconds until n tokens were generated, for n from 0 on, shape (n_generated + 1,)."""


@dataclass(slots=True)
class Watched:
    """A policy, seen by the world: its adversary learns what was done."""

    policy: Policy
    machine: Machine
    draft_passes: int = 0

    @property
    def name(self) -> str:
        return self.policy.name

    def begin(self, tokens: Sequence[int], chooser: Chooser) -> None:
        self.policy.begin(tokens, chooser)

    def plan(self, tokens: Sequence[int], room: int) -> Plan:
        self.machine.n_confirmed = len(tokens)
        self.draft_passes = self.machine.passes[Role.DRAFT_MODEL]
        return self.policy.plan(tokens, room)

    def learn(self, done: Round) -> None:
        self.policy.learn(done)
        adversary = self.machine.world.adversary
        if adversary is not None:
            asked = self.machine.passes[Role.DRAFT_MODEL] > self.draft_passes
            n_confirmed = self.machine.n_confirmed + len(done.confirmed)
            adversary.after(self.machine.world, asked or bool(done.draft.tokens), n_confirmed)

    def end(self) -> None:
        self.policy.end()


@dataclass(slots=True)
class Account:
    """Expected seconds after each round, made even over the tokens that a round confirmed."""

    counts: list[int] = field(default_factory=lambda: [0])
    seconds: list[float] = field(default_factory=lambda: [0.0])

    def add(self, n_tokens: int, seconds: float) -> None:
        self.counts.append(self.counts[-1] + n_tokens)
        self.seconds.append(self.seconds[-1] + seconds)

    def by_token(self) -> Seconds:
        return np.interp(np.arange(self.counts[-1] + 1), self.counts, self.seconds)


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """What a policy made of a world."""

    seconds: Seconds
    draft_passes: int
    rounds: int


def run(world: World, contender: Contender) -> Run:
    """Drive every reply of a world, which is fresh if it has an adversary, to its end; the text must come out as scripted."""
    machine, account = Machine(world), Account()
    target, draft_model = (VirtualModel(role, machine) for role in Role)
    policy = Watched(contender(world, draft_model), machine)
    models = {Role.TARGET: Alone(target), Role.DRAFT_MODEL: Alone(draft_model)}
    scheduler: Scheduler[int] = Scheduler(models, CancelFlag(), machine)

    def reply(start: int, end: int) -> Generator[Pass, Passed, int]:
        """Return how many rounds one reply took."""
        machine.n_confirmed, before = start, machine.expected_s
        limits, said, rounds = Limits(end - start, ()), list[int](), 0
        chooser = world.chooser()
        generation = Generation(world.text[:start], target, policy, chooser, limits, machine)
        while (done := (yield from generation.advance())) is not None:
            # The prompt's evaluation is the same for every policy, and so the first token.
            spent = 0.0 if done.is_first else machine.expected_s - before
            before = machine.expected_s
            account.add(len(done.confirmed), spent)
            said += done.confirmed
            rounds += not done.is_first
        policy.end()
        assert generation.stop_reason is StopReason.LENGTH
        assert said == world.text[start:end], "the text is not the target's own"
        return rounds

    rounds = 0
    for start, end in world.turns:
        ended = scheduler.start(0, reply(start, end))
        while not ended:
            ended = scheduler.step()
        if ended[0].error is not None:
            raise ended[0].error
        rounds += ended[0].value or 0
    return Run(account.by_token(), machine.passes[Role.DRAFT_MODEL], rounds)


def plain_seconds(world: World) -> Seconds:
    """Return what plain decoding takes."""
    account = Account()
    for start, end in world.turns:
        account.add(1, 0.0)
        for n in range(start + 1, end):
            account.add(1, world.seconds(Role.TARGET, 1, n, n))
    return account.by_token()


def regret(taken: Seconds, best: Seconds) -> float:
    """Return by which share more than the best was taken, from the 300th token on."""
    return float((taken[-1] - taken[WARM_UP]) / (best[-1] - best[WARM_UP]) - 1)


def worst_window(taken: Seconds, plain: Seconds) -> float:
    """Return the lowest speed, in plain decoding's, over any 500 tokens."""
    assert len(taken) > WINDOW
    return float(np.min((plain[WINDOW:] - plain[:-WINDOW]) / (taken[WINDOW:] - taken[:-WINDOW])))
