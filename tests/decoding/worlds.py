"""Random worlds: models, drafters, parameters and requests, and the check that holds in each.

Everything in a world follows from the values in it, so that a failing world can be printed,
shrunk by hypothesis, and run again.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice, pairwise, takewhile
from operator import attrgetter
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.decoding.choose import Chooser, choose
from localspec.decoding.constraint import AnswerConstraint, Constraint, MinLength
from localspec.decoding.costs import PassCosts
from localspec.decoding.drafters.drafter import PLAIN, Drafter, Plan
from localspec.decoding.drafters.heads import HeadsDrafter
from localspec.decoding.drafters.lookup import LookupDrafter
from localspec.decoding.drafters.model import ModelDrafter
from localspec.decoding.drafters.vocab_map import SharedIds, VocabMap
from localspec.decoding.generation import Limits
from localspec.decoding.model import LanguageModel, Role
from localspec.decoding.noise import Noise
from localspec.decoding.policy import AdaptivePolicy, FixedPolicy, Policy, plain_policy
from localspec.decoding.round import StopReason
from localspec.decoding.sampling import candidates
from localspec.decoding.stats import AcceptanceStats
from localspec.llama.token_map import TokenMap
from localspec.options import SamplingParams
from localspec.plugins.store.drafter import StoreDrafter
from tests.toy import (
    Asked,
    Brackets,
    Branching,
    CachedModel,
    Countdown,
    MadPolicy,
    Oracle,
    Reply,
    Table,
    UncachedModel,
    random_table,
    related_table,
    run_to_end,
)
from tests.toy_vocabulary import ToyTokens, random_pieces

# Of a machine on which drafting pays, so that the adaptive policy does draft.
FLAT, CHEAP = PassCosts((1, 10), (1.0, 1.2)), PassCosts((1, 10), (0.05, 0.1))

GRAMMAR = 7
"""The constraint's salt in worlds with a grammar."""

SHARED, RENAMED, OTHER = "shared", "renamed", "other"
"""Vocabularies: the same ids; the same letters by other ids; other pieces of the same letters."""

Run = tuple[dict[Role, CachedModel], Policy]
"""Models of a world, with their caches, and a policy for all its turns."""

_random_table, _related_table = cache(random_table), cache(related_table)


@dataclass(frozen=True, slots=True, eq=False)
class Renamed(Table):
    names: NDArray[np.int64]

    def row(self, context: Sequence[int]) -> NDArray[np.float32]:
        ids = np.argsort(self.names)
        plain = Table.row(self, [int(ids[name]) for name in context])
        return np.asarray(plain[ids])


def _names(n_vocab: int) -> NDArray[np.int64]:
    return np.random.default_rng(n_vocab).permutation(n_vocab)


@cache
def token_map(
    vocabulary: str, seed: int, n_vocab: int, draft_n_vocab: int, eog: tuple[int, ...]
) -> TokenMap:
    if vocabulary == RENAMED:
        letters = [bytes([97 + token]) for token in range(max(n_vocab, draft_n_vocab))]
        names = np.argsort(_names(draft_n_vocab))
        theirs = [letters[token] for token in names]
        return TokenMap(ToyTokens(letters[:n_vocab], eog=eog), ToyTokens(theirs))
    random = Random(seed)
    return TokenMap(
        ToyTokens(random_pieces(random, n_vocab), eog=eog),
        ToyTokens(random_pieces(random, draft_n_vocab), adds_space=random.random() < 0.3),
    )


@dataclass(frozen=True, slots=True)
class SomeResidues:
    """A constraint: depending on the prefix, some ids only, at times only the last one."""

    salt: int
    last: int

    def allows(self, prefix: Sequence[int], ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        turn = (sum(prefix[-3:]) + self.salt + len(prefix)) % 7
        return np.asarray(((ids % 3 != turn % 3) & (turn > 0)) | (ids == self.last))

    def forced(self, prefix: Sequence[int]) -> tuple[int, ...]:
        found: list[int] = []
        while (
            len(found) < 5
            and (sum([*prefix, *found][-3:]) + self.salt + len(prefix) + len(found)) % 7 == 0
        ):
            found.append(self.last)
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Request:
    """One turn: what it keeps of the text so far, what it adds, where it ends."""

    keep: int
    added: tuple[int, ...]
    max_tokens: int | None
    cancel_after: int | None


@dataclass(frozen=True, slots=True)
class World:
    """Everything that a comparison of speculative and plain decoding depends on."""

    n_vocab: int
    table_seed: int
    table_kind: str
    window: int
    draft_n_vocab: int
    draft_noise: float | None  # None: unrelated to the target
    n_ctx: int
    draft_n_ctx: int
    draft_rows: int  # that a pass of the draft model gives
    fresh: int | None  # tokens of a long text that the draft model starts with; None: all
    eog: tuple[int, ...]
    params: SamplingParams
    seed: int
    constraint_salt: int | None
    drafter: str  # "auto" is the adaptive policy, "mad" the mad one
    draft_length: int
    min_match: int
    lies: float
    whim: int  # seeds the oracle's lies and the mad policy
    requests: tuple[Request, ...]
    vocabulary: str = SHARED  # whether ids mean to the draft model what they mean to the target
    branches: int = 0  # most that a draft has
    lasting: float = 0  # tokens before which no answer ends
    prediction: tuple[int, ...] = ()  # that the answers are expected to be like

    def tables(self) -> tuple[Table, Table]:
        target = _random_table(self.table_seed, self.n_vocab, self.window, self.table_kind)
        if self.vocabulary == OTHER or self.draft_noise is None:
            draft = _random_table(self.table_seed + 1, self.draft_n_vocab, self.window)
        else:
            draft = _related_table(target, self.whim, self.draft_n_vocab, self.draft_noise)
        if self.vocabulary == RENAMED:
            draft = Renamed(draft.rows, draft.window, _names(self.draft_n_vocab))
        return target, draft

    def spelling(self) -> VocabMap:
        if self.vocabulary == SHARED:
            return SharedIds(min(self.n_vocab, self.draft_n_vocab))
        counts = self.n_vocab, self.draft_n_vocab
        return token_map(self.vocabulary, self.table_seed, *counts, self.eog).spelling()

    @property
    def draft_knows(self) -> bool:
        """Whether the draft model says in every place what the target says."""
        alike = self.draft_noise == 0 and self.draft_n_vocab == self.n_vocab
        # A window of a long text may be shorter than what a table looks at.
        sees = self.draft_n_ctx >= self.n_ctx and (self.fresh or self.n_ctx) >= 4
        return self.vocabulary != OTHER and alike and sees and self.window <= 3 and self.n_ctx >= 14

    def grammar(self) -> Brackets:
        return Brackets(self.eog, deepest=3, always=self.n_vocab - 1)

    def constraint(self, begin: int) -> Constraint | None:
        rule = self.rule(begin)
        if not self.least:
            return rule
        return MinLength(self.eog, begin + self.least, rule, self.n_vocab)

    @property
    def least(self) -> float:
        """Tokens before which no answer ends; none where the token that can always follow ends it."""
        return 0 if self.n_vocab - 1 in self.eog else self.lasting

    def rule(self, begin: int) -> Constraint | None:
        """Return what binds such an answer beside its length, if anything does."""
        if self.constraint_salt is None:
            return None
        if self.constraint_salt == GRAMMAR:
            # With its states in a cache: what a rejected draft leaves there would show.
            return AnswerConstraint(self.grammar(), begin)
        return SomeResidues(self.constraint_salt, self.n_vocab - 1)

    def allowed(self, answer: Sequence[int], text: Sequence[int]) -> NDArray[np.bool_] | None:
        """Return which ids may follow, found without a cache of states; None if there is no constraint."""
        allowed = self.ruled(answer, text)
        if len(answer) >= self.least:
            return allowed
        going_on = np.ones(self.n_vocab, dtype=np.bool_) if allowed is None else allowed.copy()
        going_on[list(self.eog)] = False
        return going_on if going_on.any() else allowed

    def ruled(self, answer: Sequence[int], text: Sequence[int]) -> NDArray[np.bool_] | None:
        ids = np.arange(self.n_vocab)
        if self.constraint_salt == GRAMMAR:
            grammar = self.grammar()
            state = grammar.start()
            for token in answer:
                state = grammar.step(state, token)
            return grammar.allows(state, ids)
        constraint = self.rule(0)
        return None if constraint is None else constraint.allows(text, ids)

    def chooser(self, begin: int) -> Chooser:
        return Chooser(
            self.params, Noise(self.seed), self.constraint(begin), prediction=self.prediction
        )


def random_world(random: Random) -> World:
    n_vocab = random.randint(5, 12)
    n_ctx = random.choice((8, 14, 24, 40, 60))
    eog_count = random.choice((0, 0, 1, 2))
    return World(
        n_vocab=n_vocab,
        table_seed=random.randrange(1 << 16),
        table_kind=random.choice(("peaked", "flat", "tied", "holes", "mixed")),
        window=random.choice((1, 2, 3, 64)),
        draft_n_vocab=n_vocab + random.choice((-2, -1, 0, 0, 0, 0, 3)),
        draft_noise=random.choice((None, 0.0, 0.0, 0.3, 1.0)),
        n_ctx=n_ctx,
        draft_n_ctx=random.choice((n_ctx, n_ctx, n_ctx - 3, n_ctx // 2, n_ctx + 5)),
        draft_rows=random.choice((1, 2, 5, 11, 16)),
        fresh=random.choice((None, None, 1, 4, 10)),
        eog=tuple(sorted(random.sample(range(n_vocab), eog_count))),
        params=_random_params(random, n_vocab),
        seed=random.choice((0, 1, random.randrange(1 << 32), -7, (1 << 70) + 5)),
        constraint_salt=random.choice((None, None, random.randrange(7), GRAMMAR)),
        drafter=random.choice(("model", "model", "lookup", "oracle", "auto", "mad")),
        draft_length=random.choice((0, 1, 2, 3, 4, 1000)),
        min_match=random.randint(2, 3),
        lies=random.choice((0.0, 0.1, 0.4, 1.0)),
        whim=random.randrange(1 << 16),
        requests=tuple(_random_request(random, n_vocab) for _ in range(random.choice((1, 2, 3)))),
        branches=random.choice((0, 0, 1, 3, 7)),
        lasting=random.choice((0, 0, 2, 5, np.inf)),
        prediction=tuple(random.choices(range(n_vocab), k=random.choice((0, 0, 3, 9)))),
    )


def _random_params(random: Random, n_vocab: int) -> SamplingParams:
    penalised = random.random() < 0.5
    biased = random.sample(range(n_vocab - 1), 2) if random.random() < 0.3 else ()
    return SamplingParams(
        temperature=random.choice((0.0, 0.0, 0.5, 0.8, 1.0, 3.0)),
        top_k=random.choice((0, 1, 2, 4, 40)),
        top_p=random.choice((1.0, 0.95, 0.6, 0.1)),
        min_p=random.choice((0.0, 0.05, 0.4, 1.0)),
        repeat_penalty=random.choice((1.0, 1.3, 3.0, 0.7)) if penalised else 1.0,
        presence_penalty=random.choice((0.0, 0.5, -0.5)) if penalised else 0.0,
        frequency_penalty=random.choice((0.0, 0.7)) if penalised else 0.0,
        penalty_last_n=random.choice((0, 1, 2, 4, 64)),
        logit_bias=tuple((token, random.choice((2.0, -2.0, -np.inf))) for token in biased),
    )


def _random_request(random: Random, n_vocab: int) -> Request:
    return Request(
        keep=random.choice((0, 1, 3, 8, 1000)),
        added=tuple(random.randrange(n_vocab) for _ in range(random.randint(1, 6))),
        max_tokens=random.choice((None, None, 0, 1, 2, 5, 9, 12, 20)),
        cancel_after=random.choice((None, None, None, random.randint(0, 6))),
    )


def seeds(short: int, parts: int = 4) -> list[range]:
    """Return the seeds of random worlds, in parts that can run side by side.

    LOCALSPEC_WORLDS=20000 makes a longer run of the same asserts.
    """
    count = int(os.environ.get("LOCALSPEC_WORLDS", "0")) or short
    bounds = [count * part // parts for part in range(parts + 1)]
    return [range(*each) for each in pairwise(bounds)]


def reference(
    prompt: Sequence[int], world: World, max_tokens: int | None
) -> tuple[list[int], StopReason]:
    """Decode as plainly as can be: one row, one choice, one token."""
    table, noise = world.tables()[0], Noise(world.seed)
    text = list(prompt)
    while len(text) - len(prompt) != max_tokens:
        if len(text) == world.n_ctx:
            return text, StopReason.CONTEXT_FULL
        row = table.row(text).copy()
        allowed = world.allowed(text[len(prompt) :], text)
        if allowed is not None:
            row[~allowed] = -np.inf
        text.append(choose(candidates(row, text, world.params), noise, len(text)))
        if text[-1] in world.eog:
            return text, StopReason.EOG
    return text, StopReason.LENGTH


def check_same_text(world: World) -> None:
    """Assert that drafting changes neither text nor stop reason, in any turn of the world.

    Plain decoding is the independent loop above and, on models of its own, the scheduler without a
    drafter. The speculative side runs on models with a cache, which the turns share, and again
    on models without one.
    """
    target, draft = world.tables()
    text: list[int] = []

    def run(make: type[CachedModel], policy: Policy | None = None) -> Run:
        models = {Role.TARGET: make(target, world.n_ctx)}
        if policy is None:
            models[Role.DRAFT_MODEL] = make(draft, world.draft_n_ctx)
            policy = policy_of(world, models[Role.DRAFT_MODEL], text)
        return models, policy

    plain, cold, warm = run(CachedModel, plain_policy()), run(UncachedModel), run(CachedModel)
    cached, cached_draft = warm[0][Role.TARGET], warm[0][Role.DRAFT_MODEL]
    for request in world.requests:
        prompt = [*text[: request.keep], *request.added][: world.n_ctx - 1]
        limits = Limits(request.max_tokens, world.eog)
        text[:], stop_reason = reference(prompt, world, request.max_tokens)
        expected = tuple(text[len(prompt) :])
        for models, policy in (plain, cold):
            reply = run_to_end(prompt, models, policy, world.chooser(len(prompt)), limits)
            assert reply.tokens == expected
            assert reply.stop_reason is stop_reason

        asked_before, draft_asked_before = len(cached.asked), len(cached_draft.asked)
        cached.cancel = cached_draft.cancel = Countdown(request.cancel_after)
        reply = run_to_end(prompt, *warm, world.chooser(len(prompt)), limits)
        if cached.cancel.rang:
            assert reply.stop_reason is StopReason.CANCELLED
            assert reply.tokens == expected[: len(reply.tokens)]
        else:
            assert reply.tokens == expected
            assert reply.stop_reason is stop_reason
        _check_rounds(world, reply, cached.asked[asked_before:], len(prompt), len(expected))
        draft_asked = cached_draft.asked[draft_asked_before:]
        assert all(asked.rows <= world.draft_rows for asked in draft_asked)


class PlansTwice:
    """Asks a policy for its plan again, which must not change it."""

    def __init__(self, within: Policy) -> None:
        self._within, self.name = within, within.name
        self.begin, self.learn, self.end = within.begin, within.learn, within.end

    def plan(self, tokens: Sequence[int], room: int) -> Plan:
        plan, again = (self._within.plan(tokens, room) for _ in range(2))
        values = attrgetter("drafter", "draft_length", "rate", "forecast")
        assert values(again) == values(plan), "planning changes what is planned"
        assert tuple(again.verify_s) == tuple(plan.verify_s)
        return plan


def drafters_of(
    world: World, draft_model: LanguageModel | None, text: Sequence[int]
) -> dict[str, Drafter]:
    drafters: dict[str, Drafter] = {
        "off": PLAIN.drafter,
        "lookup": LookupDrafter(world.eog, world.min_match),
        "store": StoreDrafter(world.eog, world.min_match, SaidTwice(text)),
        "oracle": Oracle(text, world.n_vocab, world.lies, Random(world.whim)),
    }
    if draft_model is not None:
        costs = None if world.drafter == "model" else CHEAP
        by_model = ModelDrafter(draft_model, world.spelling(), world.eog, costs, world.fresh)
        if world.branches:
            by_model.expect({6: (0.9, 100.0)})
        drafters["model"] = by_model
        same = SharedIds(min(world.n_vocab, world.draft_n_vocab))
        drafters["heads"] = HeadsDrafter(
            _SometimesKnows(draft_model, world.whim), same, world.eog, costs
        )
    for name in ("oracle", "lookup", "model") if world.branches else ():
        if name in drafters and not (name == "model" and world.drafter == "auto"):
            within, random = drafters[name], Random(world.whim)
            drafters[name] = Branching(within, world.branches, text, world.n_vocab, random)
    return drafters


class _SometimesKnows:
    """A draft model as heads, for which the target has not always computed what they need."""

    def __init__(self, model: LanguageModel, whim: int) -> None:
        self._model, self._whim = model, whim
        self.longest, self.in_one_pass = 1 + whim % 9, whim % 4 == 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def knows(self, tokens: Sequence[int]) -> bool:
        return len(tokens) % 4 != self._whim % 4


def policy_of(
    world: World, draft_model: LanguageModel | None, text: Sequence[int], longest: int = 9
) -> Policy:
    drafters = drafters_of(world, draft_model, text)
    if world.drafter == "auto":
        small = "heads" if world.whim % 2 else "model"
        able = [drafters[name] for name in ("lookup", "store", small) if name in drafters]
        return PlansTwice(AdaptivePolicy(FLAT, longest, able, world.branches))
    if world.drafter == "mad":
        return MadPolicy(tuple(drafters.values()), Random(world.whim))
    return FixedPolicy(drafters.get(fixed_in(world), PLAIN.drafter), world.draft_length)


def fixed_in(world: World) -> str:
    """Return who always drafts in a world: half of those that look up do so in what was said before, a third of models are heads."""
    if world.drafter == "model" and world.whim % 3 == 0 and not world.draft_knows:
        return "heads"
    return "store" if world.drafter == "lookup" and world.whim % 2 else world.drafter


@dataclass(frozen=True, slots=True)
class SaidTwice:
    """What was said before, where that is a text of which somebody else may make another one meanwhile."""

    text: Sequence[int]

    def find(self, text: Sequence[int]) -> tuple[int, bool, int] | None:
        for place in range(len(self.text) - 1, 1, -1):
            pairs = zip(reversed(self.text[:place]), reversed(text), strict=False)
            length = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], islice(pairs, 16)))
            if length >= 2:
                return length, place % 3 == 0, place
        return None

    def read(self, place: int, most: int) -> list[int]:
        return list(self.text[place : place + most])


def _check_rounds(
    world: World, reply: Reply, asked: Sequence[Asked], n_prompt: int, n_expected: int
) -> None:
    """Assert what holds for the target's passes and for the figures of every generation."""
    stats = AcceptanceStats()
    passes = [each for each in asked if each.rows > 0]
    assert len(passes) <= n_expected, "more passes than plain decoding needs"
    n_past, again = n_prompt, 0
    for done in reply.rounds:
        draft, accepted = done.draft, done.verdict.accepted
        assert done.confirmed
        assert done.is_first == (n_past == n_prompt), (
            "the prompt gives the first token, and no other"
        )
        assert 0 <= accepted <= len(draft.tokens) == len(draft.confidences)
        assert all(0 <= confidence <= 1 for confidence in draft.confidences)
        all_of_it = (*draft.tokens[:accepted], *done.verdict.choices)
        assert done.confirmed == all_of_it[: len(done.confirmed)]
        assert min(done.spent.round_s, done.spent.verify_s) > 0
        assert done.spent.other_s >= 0
        if world.draft_knows and draft.drafter == "model":
            assert accepted == len(draft.tokens), "the draft model knows"
        if not done.is_first:
            width = len(draft.tokens) + len(draft.branches) + 1
            this = passes[1 + stats.rounds]
            n_tokens = n_past + len(draft.tokens)
            assert this == Asked(rows=width, n_tokens=n_tokens, evaluated=width + again)
            assert n_past + width - 1 <= world.n_ctx
            again = int(done.verdict.branch is not None)
            if again:
                assert done.verdict.branch == draft.alternatives[accepted][0]
                assert accepted in draft.branches
        n_past += len(done.confirmed)
        stats.add(done)
    assert len(passes) == (stats.rounds + 1 if passes else 0)
    assert stats.confirmed == len(reply.tokens) - (1 if reply.rounds else 0)
    for figure in ("rounds", "drafted", "accepted", "confirmed", "branched", "caught"):
        parts = sum(getattr(each, figure) for each in stats.by_drafter.values())
        assert parts == getattr(stats, figure)
