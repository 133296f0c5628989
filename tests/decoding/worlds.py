"""Random worlds: models, drafters, parameters and requests, and the check that holds in each.

Everything in a world follows from the values in it, so that a failing world can be printed,
shrunk by hypothesis, and run again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
from localspec.decoding.adaptive import adaptive_policy
from localspec.decoding.drafter import Drafter, NoDrafter
from localspec.decoding.generate import Limits, StopReason
from localspec.decoding.lookup_drafter import LookupDrafter
from localspec.decoding.model_drafter import ModelDrafter
from localspec.decoding.tries import DRAFT_ROWS
from numpy.typing import NDArray

from localspec.decoding.choose import Chooser, choose
from localspec.decoding.constraint import AnswerConstraint, Constraint
from localspec.decoding.costs import PassCosts
from localspec.decoding.model import LanguageModel, Role
from localspec.decoding.noise import Noise
from localspec.decoding.policy import FixedPolicy, Policy
from localspec.decoding.sampling import candidates
from localspec.decoding.stats import AcceptanceStats
from localspec.options import SamplingParams
from tests.toy import (
    Asked,
    Brackets,
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

# Of a machine on which drafting pays, so that the adaptive policy does draft.
FLAT, CHEAP = PassCosts((1, 10), (1.0, 1.2)), PassCosts((1, 10), (0.05, 0.1))

GRAMMAR = 7
"""The constraint's salt in worlds with a grammar."""


@dataclass(frozen=True, slots=True)
class SomeResidues:
    """A constraint: depending on the prefix, some ids only, at times only the last one."""

    salt: int
    last: int

    def allows(self, prefix: Sequence[int], ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        turn = (sum(prefix[-3:]) + self.salt + len(prefix)) % 7
        return np.asarray(((ids % 3 != turn % 3) & (turn > 0)) | (ids == self.last))


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
    eog: tuple[int, ...]
    params: SamplingParams
    seed: int
    constraint_salt: int | None
    drafter: str
    draft_length: int | None  # None: the mad policy
    min_match: int
    lies: float
    whim: int  # seeds the oracle's lies and the mad policy
    requests: tuple[Request, ...]

    def tables(self) -> tuple[Table, Table]:
        """Return the tables of target and draft model."""
        target = random_table(self.table_seed, self.n_vocab, self.window, self.table_kind)
        if self.draft_noise is None:
            draft = random_table(self.table_seed + 1, self.draft_n_vocab, self.window)
        else:
            draft = related_table(target, self.whim, self.draft_n_vocab, self.draft_noise)
        return target, draft

    def constraint(self, begin: int) -> Constraint | None:
        """Return the constraint of an answer that begins there, if this world has one."""
        if self.constraint_salt is None:
            return None
        last = self.n_vocab - 1
        if self.constraint_salt == GRAMMAR:
            # With its states in a cache: what a rejected draft leaves there would show.
            return AnswerConstraint(Brackets(self.eog, deepest=3, always=last), begin)
        return SomeResidues(self.constraint_salt, last)

    def chooser(self, begin: int) -> Chooser:
        """Return the chooser; its noise is made anew, as a new process would."""
        return Chooser(self.params, Noise(self.seed), self.constraint(begin))


def random_world(random: Random) -> World:
    """Draw a world."""
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
        eog=tuple(sorted(random.sample(range(n_vocab), eog_count))),
        params=_random_params(random, n_vocab),
        seed=random.choice((0, 1, random.randrange(1 << 32), -7, (1 << 70) + 5)),
        constraint_salt=random.choice((None, None, random.randrange(7), GRAMMAR)),
        drafter=random.choice(("model", "model", "lookup", "oracle")),
        draft_length=random.choice((None, None, 0, 1, 2, 3, 4, 1000)),
        min_match=random.randint(1, 3),
        lies=random.choice((0.0, 0.1, 0.4, 1.0)),
        whim=random.randrange(1 << 16),
        requests=tuple(_random_request(random, n_vocab) for _ in range(random.choice((1, 2, 3)))),
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


def reference(
    prompt: Sequence[int], world: World, request: Request
) -> tuple[list[int], StopReason]:
    """Decode as plainly as can be: one row, one choice, one token."""
    table, noise = world.tables()[0], Noise(world.seed)
    text = list(prompt)
    while len(text) - len(prompt) != request.max_tokens:
        if len(text) == world.n_ctx:
            return text, StopReason.CONTEXT_FULL
        row = table.row(text).copy()
        constraint = world.constraint(len(prompt))  # afresh: nothing is left of what it was asked
        if constraint is not None:
            row[~constraint.allows(text, np.arange(world.n_vocab))] = -np.inf
        text.append(choose(candidates(row, text, world.params), noise, len(text)))
        if text[-1] in world.eog:
            return text, StopReason.EOG
    return text, StopReason.LENGTH


def check_same_text(world: World) -> None:
    """Assert that drafting changes neither text nor stop reason, in any turn of the world.

    Plain decoding is the independent loop above and, on models of its own, `drive` without a
    drafter. The speculative side runs on models with a cache, which the turns share, and again
    on models without one.
    """
    target, draft = world.tables()
    plain = CachedModel(target, world.n_ctx)
    cached = CachedModel(target, world.n_ctx)
    cached_draft = CachedModel(draft, world.draft_n_ctx)
    lookup = LookupDrafter(world.eog, min_match=world.min_match, max_match=6)
    text: list[int] = []
    for request in world.requests:
        prompt = [*text[: request.keep], *request.added][: world.n_ctx - 1]
        limits = Limits(request.max_tokens, world.eog)
        text, stop_reason = reference(prompt, world, request)
        expected = tuple(text[len(prompt) :])

        plainly = _run(prompt, plain, None, FixedPolicy(NoDrafter(), 0), world, limits)
        assert plainly.tokens == expected
        assert plainly.stop_reason is stop_reason

        cold, cold_draft = (
            UncachedModel(target, world.n_ctx),
            UncachedModel(draft, world.draft_n_ctx),
        )
        policy = _policy(world, text, lookup)
        coldly = _run(prompt, cold, cold_draft, policy, world, limits)
        assert coldly.tokens == expected
        assert coldly.stop_reason is stop_reason

        asked_before, draft_asked_before = len(cached.asked), len(cached_draft.asked)
        cached.cancel = cached_draft.cancel = Countdown(request.cancel_after)
        policy = _policy(world, text, lookup)
        reply = _run(prompt, cached, cached_draft, policy, world, limits)
        if cached.cancel.rang:
            assert reply.stop_reason is StopReason.CANCELLED
            assert reply.tokens == expected[: len(reply.tokens)]
        else:
            assert reply.tokens == expected
            assert reply.stop_reason is stop_reason
        _check_rounds(reply, cached.asked[asked_before:], len(prompt), len(expected))
        assert all(asked.rows <= DRAFT_ROWS for asked in cached_draft.asked[draft_asked_before:])


def _policy(world: World, text: Sequence[int], lookup: LookupDrafter) -> Policy:
    shared = min(world.n_vocab, world.draft_n_vocab)
    random = Random(world.whim)
    drafters: dict[str, Drafter] = {
        "model": ModelDrafter(world.draft_n_ctx, shared, world.eog),
        "lookup": lookup,
        "oracle": Oracle(tuple(text), world.n_vocab, world.lies, random),
        "off": NoDrafter(),
    }
    if world.draft_length is not None:
        return FixedPolicy(drafters[world.drafter], world.draft_length)
    if world.whim % 2:
        rows = 1 + world.whim % 9
        drafter = ModelDrafter(world.draft_n_ctx, shared, world.eog, most_rows=rows)
        return adaptive_policy(FLAT, world.eog, 9, drafter, CHEAP)
    return MadPolicy(tuple(drafters.values()), random)


def _run(
    prompt: Sequence[int],
    target: LanguageModel,
    draft: LanguageModel | None,
    policy: Policy,
    world: World,
    limits: Limits,
) -> Reply:
    models = {Role.TARGET: target}
    if draft is not None:
        models[Role.DRAFT_MODEL] = draft
    return run_to_end(prompt, models, policy, world.chooser(len(prompt)), limits)


def _check_rounds(reply: Reply, asked: Sequence[Asked], n_prompt: int, n_expected: int) -> None:
    """Assert what holds for the target's passes and for the figures of every generation."""
    stats = AcceptanceStats()
    passes = [each for each in asked if each.rows > 0]
    assert len(passes) <= n_expected, "more passes than plain decoding needs"
    n_past = n_prompt
    for confirmed in reply.rounds:
        assert confirmed.tokens
        if confirmed.round is None:
            assert n_past == n_prompt, "only the first token comes without a round"
            n_past += len(confirmed.tokens)
            continue
        draft, accepted = confirmed.round.draft, confirmed.round.verdict.accepted
        assert 0 <= accepted <= len(draft.tokens) == len(draft.confidences)
        assert all(0 <= confidence <= 1 for confidence in draft.confidences)
        assert len(confirmed.round.confirmed) == accepted + 1
        assert confirmed.tokens == confirmed.round.confirmed[: len(confirmed.tokens)]
        width = len(draft.tokens) + 1
        this = passes[1 + stats.rounds]
        assert this == Asked(rows=width, n_tokens=n_past + width - 1, evaluated=width)
        n_past += len(confirmed.tokens)
        stats.add(draft.drafter, len(draft.tokens), accepted, len(confirmed.tokens))
    assert len(passes) == (stats.rounds + 1 if passes else 0)
    assert stats.confirmed == len(reply.tokens) - (1 if reply.rounds else 0)
    for figure in ("rounds", "drafted", "accepted", "confirmed"):
        parts = sum(getattr(each, figure) for each in stats.by_drafter.values())
        assert parts == getattr(stats, figure)
