"""Runs the real loop in a simulated world, and compares what it took with other ways.

Seconds here are the *expected* ones of the passes that were made: the policy sees a clock with
jitter, the comparison does not. Policies are compared on the same coins, so that what differs
between two runs of a world is what the policies did.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from localspec.decoding.generate import Limits, StopReason, drive
from localspec.decoding.timings import Timings
from localspec.decoding.windowed_model import WindowedModel
from numpy.typing import NDArray

from lab.simulator.pair import Machine, VirtualModel
from lab.simulator.world import World
from localspec.decoding.model import LanguageModel, Role
from localspec.decoding.policy import Plan, Policy
from localspec.decoding.round import Round, Spent

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
    def drafter_name(self) -> str:
        return self.policy.drafter_name

    @property
    def uses_draft_model(self) -> bool:
        return self.policy.uses_draft_model

    def begin(self, *, greedy: bool) -> None:
        self.policy.begin(greedy=greedy)

    def plan(self, tokens: Sequence[int], room: int, lag: int) -> Plan:
        self.machine.n_confirmed = len(tokens)
        self.draft_passes = self.machine.passes[Role.DRAFT_MODEL]
        return self.policy.plan(tokens, room, lag)

    def learn(self, done: Round, spent: Spent) -> None:
        self.policy.learn(done, spent)
        adversary = self.machine.world.adversary
        if adversary is not None:
            asked = self.machine.passes[Role.DRAFT_MODEL] > self.draft_passes
            n_confirmed = self.machine.n_confirmed + len(done.confirmed)
            adversary.after(self.machine.world, asked or bool(done.draft.tokens), n_confirmed)


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


def run(world: World, policy: Policy, fresh: int | None = None) -> Run:
    """Drive every reply of the world to its end; the text must come out as scripted.

    Args:
        world: fresh, if it has an adversary.
        policy: plans the rounds.
        fresh: tokens that a new window of the draft model starts with; None shows it the whole.
    """
    machine, account, rounds = Machine(world), Account(), 0
    target, draft = (VirtualModel(role, machine) for role in Role)
    seen: LanguageModel = draft if fresh is None else WindowedModel(draft, draft.n_ctx, fresh)
    models: dict[Role, LanguageModel] = {Role.TARGET: target, Role.DRAFT_MODEL: seen}
    for start, end in world.turns:
        machine.n_confirmed, before = start, machine.expected_s
        said: list[int] = []
        replying = drive(
            world.text[:start],
            models,
            Watched(policy, machine),
            world.chooser(),
            Limits(end - start, ()),
            Timings(machine),
        )
        while True:
            try:
                confirmed = next(replying)
            except StopIteration as finished:
                ended = finished.value
                break
            # The prompt's evaluation is the same for every policy, and so the first token.
            spent = 0.0 if confirmed.round is None else machine.expected_s - before
            before = machine.expected_s
            account.add(len(confirmed.tokens), spent)
            said += confirmed.tokens
            rounds += confirmed.round is not None
        assert ended is StopReason.LENGTH
        assert said == world.text[start:end], "the text is not the target's own"
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
