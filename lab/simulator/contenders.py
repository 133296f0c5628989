"""Contenders in simulated worlds: the adaptive policy, fixed settings, and a naive one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localspec.decoding.adaptive import adaptive_policy
from localspec.decoding.drafter import NoDrafter
from localspec.decoding.lookup_drafter import LookupDrafter
from localspec.decoding.model_drafter import ModelDrafter
from localspec.decoding.tries import DRAFT_ROWS

from lab.simulator.world import World
from localspec.decoding.break_even import window_length
from localspec.decoding.policy import FixedPolicy, Plan, Policy
from localspec.decoding.round import Round, Spent
from localspec.decoding.stats import expected_confirmed

LONGEST = 31


def _everything(world: World) -> int | None:
    return None


@dataclass(frozen=True, slots=True)
class Contender:
    """How to make a policy for a world, of which it may look at the tables and nothing else.

    Args:
        make: makes it, without memories.
        window: tokens that a new window of the draft model starts with; None shows it all.
    """

    make: Callable[[World], Policy]
    window: Callable[[World], int | None] = _everything


def _adaptive_policy(world: World) -> Policy:
    target, draft = world.tables
    return adaptive_policy(target, (), LONGEST, _drafter(world), draft)


def _adaptive_window(world: World) -> int:
    return window_length(*world.tables, len(world.text))


ADAPTIVE = Contender(_adaptive_policy, _adaptive_window)
"""The adaptive policy as the program makes it."""

PLAIN = Contender(lambda _: FixedPolicy(NoDrafter(), 0))
"""Never drafts."""


def fixed_model(length: int) -> Contender:
    """Always drafts `length` tokens with the model."""
    return Contender(lambda world: FixedPolicy(_drafter(world), length, uses_draft_model=True))


def fixed_lookup(length: int, min_match: int = 2) -> Contender:
    """Always copies up to `length` tokens."""
    return Contender(lambda world: FixedPolicy(LookupDrafter((), min_match), length))


def _drafter(world: World) -> ModelDrafter:
    return ModelDrafter(len(world.text), world.n_vocab, (), most_rows=DRAFT_ROWS)


class MovingAverage:
    """A naive policy: drafts as far as an exponential moving average of acceptance says, at least one token.

    It probes always, so that whoever knows it can make it pay for every probe.
    """

    drafter_name = "model"
    uses_draft_model = True

    def __init__(self, world: World, weight: float = 0.1) -> None:
        self._drafter = _drafter(world)
        self._target, self._draft = world.tables
        self._weight = weight
        self.agreement = 0.8

    def begin(self, *, greedy: bool) -> None:
        pass

    def plan(self, tokens: Sequence[int], room: int, lag: int) -> Plan:
        length = max(range(1, 9), key=self._rate)
        return Plan(self._drafter, length, lag > 2)

    def learn(self, done: Round, spent: Spent) -> None:
        accepted = done.verdict.accepted
        seen = [1.0] * accepted + [0.0] * (accepted < len(done.draft.tokens))
        for hit in seen:
            self.agreement += self._weight * (hit - self.agreement)

    def _rate(self, length: int) -> float:
        seconds = self._target.of(length + 1) + length * self._draft.of(1)
        return expected_confirmed(self.agreement, length) / seconds


NAIVE = Contender(MovingAverage)
