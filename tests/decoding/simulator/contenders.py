"""Contenders in simulated worlds: the adaptive policy, fixed settings, and a naive one."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from localspec.decoding.choose import Chooser
from localspec.decoding.costs import PairCosts
from localspec.decoding.draft_mode import AUTO
from localspec.decoding.drafters.branches import MOST_BRANCHES
from localspec.decoding.drafters.drafter import Plan
from localspec.decoding.drafters.lookup import LookupDrafter
from localspec.decoding.drafters.model import ModelDrafter
from localspec.decoding.drafters.vocab_map import SharedIds
from localspec.decoding.drafting import Drafting
from localspec.decoding.policy import LONGEST_DRAFT, FixedPolicy, Policy, plain_policy
from localspec.decoding.round import Round
from localspec.decoding.stats import expected_confirmed
from localspec.plugins.store.token_log import TokenLog
from tests.decoding.simulator.pair import Alone, VirtualModel
from tests.decoding.simulator.world import World

_STORE_MEGABYTES = 2

Contender = Callable[[World, VirtualModel], Policy]
"""Makes a policy without memories for a world, of which it may look at the tables and at the draft model."""


def adaptive(world: World, draft_model: VirtualModel, branches: int = MOST_BRANCHES) -> Policy:
    """Return the adaptive policy as the program makes it, with all drafters that the world offers."""
    drafting = Drafting(
        1,
        Alone(draft_model),
        partial(SharedIds, world.n_vocab),
        (),
        PairCosts(*world.tables),
        LONGEST_DRAFT,
        shared=_said(world),
        has_heads=world.has_heads,
        branches=0 if world.has_heads else branches,
    )
    return drafting.policy(AUTO)


def _said(world: World) -> dict[str, TokenLog]:
    """Return the program's own store, with what was said before; its file is gone, and stays open."""
    if not world.said_before:
        return {}
    with TemporaryDirectory() as folder:
        log = TokenLog(Path(folder) / "said", 1, world.n_vocab, _STORE_MEGABYTES)
        for number, text in enumerate(world.said_before):
            log.append(f"text {number}", text)
    return {"store": log}


def chains(world: World, draft_model: VirtualModel) -> Policy:
    """Return the adaptive policy without branches."""
    return adaptive(world, draft_model, branches=0)


def plain(world: World, draft_model: VirtualModel) -> Policy:
    """Return a policy that never drafts."""
    return plain_policy()


def fixed_model(length: int) -> Contender:
    """Always drafts `length` tokens with the model."""
    return lambda world, draft_model: FixedPolicy(_drafter(world, draft_model), length)


def fixed_lookup(length: int, min_match: int = 2) -> Contender:
    """Always copies up to `length` tokens."""
    return lambda _world, _draft_model: FixedPolicy(LookupDrafter((), min_match=min_match), length)


def _drafter(world: World, draft_model: VirtualModel) -> ModelDrafter:
    return ModelDrafter(draft_model, SharedIds(world.n_vocab), ())


class MovingAverage:
    """A naive policy: drafts as far as an exponential moving average of acceptance says, at least one token.

    It probes always, so that whoever knows it can make it pay for every probe.
    """

    name = "model"

    def __init__(self, world: World, draft_model: VirtualModel, weight: float = 0.1) -> None:
        self._drafter = _drafter(world, draft_model)
        self._target, self._draft = world.tables
        self._weight = weight
        self.agreement = 0.8

    def begin(self, tokens: Sequence[int], chooser: Chooser) -> None:
        self._drafter.begin(tokens, chooser)

    def plan(self, tokens: Sequence[int], room: int) -> Plan:
        return Plan(self._drafter, max(range(1, 9), key=self._rate))

    def learn(self, done: Round) -> None:
        accepted = done.verdict.accepted
        seen = [1.0] * accepted + [0.0] * (accepted < len(done.draft.tokens))
        for hit in seen:
            self.agreement += self._weight * (hit - self.agreement)
        self._drafter.learn(done)

    def end(self) -> None:
        pass

    def _rate(self, length: int) -> float:
        seconds = self._target.of(length + 1) + length * self._draft.of(1)
        return expected_confirmed(self.agreement, length) / seconds
