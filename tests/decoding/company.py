"""Random companies: several sequences at once under one scheduler, and the check that each says what it says alone.

Requests come at any time and of any kind; some are cancelled, some dropped, some fail, and now and
then all are cancelled. Whoever is not meant must not notice.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from localspec.decoding.cancel import CancelFlag
from localspec.decoding.drafters.drafter import Drafter
from localspec.decoding.generation import Generation, Limits
from localspec.decoding.model import Pass, Passed, Role
from localspec.decoding.policy import AdaptivePolicy, FixedPolicy, Policy, Sharing
from localspec.decoding.round import Round, StopReason
from localspec.decoding.scheduler import Ended, Scheduler, Sequences
from localspec.errors import PassFailed
from tests.decoding.worlds import (
    FLAT,
    SHARED,
    PlansTwice,
    World,
    drafters_of,
    fixed_in,
    policy_of,
    random_world,
    reference,
)
from tests.toy import CachedModel, MadPolicy, Stopwatch, Table, ToySequences

Speaking = Generator[Pass, Passed, StopReason]
_PATIENCE = 5000
"""Steps after which a company hangs; none of them needs a tenth."""


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """What the sequences of a model are like."""

    table: Table
    n_ctx: int
    count: int
    n_batch: int
    most_rows: int


@dataclass(slots=True, eq=False)
class Hooks:
    """How a company reaches into the passes of a model."""

    flag: CancelFlag
    on_pass: Callable[[], None]
    poison: dict[int, int] = field(default_factory=dict)
    may_forget: bool = True
    evaluated: int = 0


Make = Callable[[Random, Role, Shape, Hooks], Sequences]
"""Makes the sequences of a model, which keep to the hooks."""


def toy_sequences(random: Random, role: Role, shape: Shape, hooks: Hooks) -> ToySequences:
    class Counted(ToySequences):
        def _evaluate(self, asked):  # type: ignore[no-untyped-def]
            before = len(self.passes)
            try:
                return super()._evaluate(asked)
            finally:
                hooks.evaluated += sum(sum(each.values()) for each in self.passes[before:])

    views = [CachedModel(shape.table, shape.n_ctx) for _ in range(shape.count)]
    made = Counted(views, hooks.flag, shape.n_batch, shape.most_rows, hooks.on_pass, hooks.poison)
    made.at_once = random.choice((1, 5, 1 << 16))
    return made


@dataclass(frozen=True, slots=True)
class Line:
    """One request: its prompt, its world, where it ends, and what it says alone."""

    prompt: tuple[int, ...]
    world: World
    limits: Limits
    tokens: tuple[int, ...]
    stop_reason: StopReason


@dataclass(slots=True, eq=False)
class Running:
    line: Line
    policy: Policy
    rounds: list[Round] = field(default_factory=list)
    most_rounds: int | None = None
    chunks: list[int] = field(default_factory=list)

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple(token for each in self.rounds for token in each.confirmed)


def draw_lines(random: Random, base: World, count: int) -> list[Line]:
    """Draw requests; many begin alike, and some repeat another one whole."""
    shared = tuple(random.randrange(base.n_vocab) for _ in range(random.choice((0, 3, 8, 20))))
    drawn: list[Line] = []
    for _ in range(count):
        other = random_world(random)
        world = replace(
            base,
            seed=other.seed,
            params=replace(other.params, logit_bias=()),
            eog=tuple(token for token in other.eog if token < base.n_vocab),
            constraint_salt=other.constraint_salt,
            drafter=other.drafter,
            draft_length=other.draft_length,
            whim=other.whim,
            branches=other.branches,
        )
        prompt = shared[: random.randint(0, len(shared))] if random.random() < 0.3 else shared
        prompt += tuple(random.randrange(base.n_vocab) for _ in range(random.randint(1, 6)))
        if drawn and random.random() < 0.2:
            prompt = random.choice(drawn).prompt
        prompt = prompt[: base.n_ctx - 1]
        most = random.choice((None, 0, 1, 2, 5, 12))
        text, reason = reference(prompt, world, most)
        limits = Limits(most, world.eog)
        drawn.append(Line(prompt, world, limits, tuple(text[len(prompt) :]), reason))
    return drawn


def _twins(world: World) -> World:
    alike = {"draft_noise": 0.0, "draft_n_vocab": world.n_vocab, "draft_n_ctx": world.n_ctx}
    return replace(world, **alike)  # type: ignore[arg-type]


class Company:
    """Sequences, a scheduler, and what goes on there."""

    def __init__(self, random: Random, make: Make, vocabulary: str) -> None:
        self._random = random
        base = _twins(random_world(random)) if random.random() < 0.3 else random_world(random)
        base = replace(base, vocabulary=vocabulary)
        self._count = random.randint(1, 6)
        # Of those who only draft and verify beside one another, every token is to be evaluated once.
        self._calm = random.random() < 0.4
        self._flag = CancelFlag()
        self._until_all_stop = None if self._calm else random.choice((None, random.randint(0, 60)))
        self._clock = Stopwatch()
        self._hooks = {
            role: Hooks(self._flag, self._meanwhile, may_forget=not self._calm) for role in Role
        }
        self._sequences = self._made(base, make)
        self._longest = self._sequences[Role.TARGET].most_rows - 1
        self._scheduler = Scheduler[StopReason](
            self._sequences,
            self._flag,
            self._clock,
            shared_chunk=random.choice((None, None, 1, 3, 8)),
            on_chunk=self._on_chunk,
        )
        self._answering = Sharing()
        self._waiting = draw_lines(random, base, random.randint(1, 2 * self._count))
        self._running: dict[int, Running] = {}
        self._to_stop: set[int] = set()
        self._all_stop = False
        self._to_evaluate = 0

    def _made(self, base: World, make: Make) -> Mapping[Role, Sequences]:
        random, count = self._random, self._count
        roles = list(Role) if random.random() < 0.7 else [Role.TARGET]
        n_ctx = {Role.TARGET: base.n_ctx, Role.DRAFT_MODEL: base.draft_n_ctx}
        made = {}
        for role, table in zip(Role, base.tables(), strict=True):
            rows = random.choice((1, 3, 4, 8, 16))
            if role is Role.DRAFT_MODEL:
                rows = max(rows, base.draft_rows)
            n_batch = max(rows, random.choice((2, 4, 8, 17, 40, 200)))
            shape = Shape(table, n_ctx[role], count, n_batch, rows)
            if role in roles:
                made[role] = make(random, role, shape, self._hooks[role])
        return made

    def run(self) -> None:
        """Say every line; assert that each is what it is alone, as far as it was let."""
        for _ in range(_PATIENCE):
            if not (self._waiting or self._scheduler.running):
                break
            if not self._calm:
                self._interfere()
            self._begin_some()
            stopping = set(self._to_stop)
            for ended in self._scheduler.step():
                self._check(ended)
            assert not stopping & self._running.keys(), "cancelled, and goes on"
            if self._calm:
                self._check_caches()
            if self._all_stop and not self._running:
                self._all_stop = False
                self._flag.clear()
        else:
            raise AssertionError("it hangs")
        assert not self._running
        if self._calm:
            assert self._hooks[Role.TARGET].evaluated <= self._to_evaluate, "evaluated again"

    def _check_caches(self) -> None:
        """Assert that nobody has lost what was evaluated of its text."""
        for slot, running in self._running.items():
            assert running.chunks == sorted(set(running.chunks))
            if running.rounds:
                text = [*running.line.prompt, *running.tokens]
                request = Pass(Role.TARGET, text, rows=1)
                again = running.rounds[-1].verdict.branch is not None
                assert self._sequences[Role.TARGET].missing(slot, request) == 1 + again

    def _begin_some(self) -> None:
        random, scheduler = self._random, self._scheduler
        while self._waiting and (free := scheduler.free) and random.random() < 0.7:
            slot, line = random.choice(free), self._waiting.pop()
            running = self._running[slot] = Running(line, self._policy(line, slot))
            self._to_stop.discard(slot)
            if not self._calm and random.random() < 0.15:
                most = random.randint(1, len(line.prompt) + len(line.tokens) + 1)
                self._hooks[random.choice(list(self._sequences))].poison[slot] = most
            chooser = line.world.chooser(begin=len(line.prompt))
            target = self._sequences[Role.TARGET].views[slot]
            generation = Generation(
                line.prompt, target, running.policy, chooser, line.limits, self._clock
            )
            said = self._said(generation, running)
            for ended in scheduler.start(slot, said):
                self._check(ended)

    def _said(self, generation: Generation, running: Running) -> Speaking:
        while (done := (yield from generation.advance())) is not None:
            running.rounds.append(done)
        assert generation.stop_reason is not None
        return generation.stop_reason

    def _interfere(self) -> None:
        kind = self._random.random()
        if kind < 0.05:
            self._cancel()
        elif kind < 0.07 and self._running:
            slot = self._random.choice(list(self._running))
            self._scheduler.drop(slot)
            self._leave(slot)

    def _meanwhile(self) -> None:
        """Act as another thread might, in the midst of a step."""
        if self._calm:
            return
        if self._random.random() < 0.05:
            self._cancel()
        if self._until_all_stop is not None:
            self._until_all_stop -= 1
            if self._until_all_stop < 0:
                self._until_all_stop = None
                self._all_stop = True
                self._flag.set()
                for running in self._running.values():
                    running.most_rounds = len(running.rounds) + 1

    def _cancel(self) -> None:
        slot = self._random.randrange(self._count)
        if slot in self._running:
            self._to_stop.add(slot)
        self._scheduler.cancel(slot)

    def _on_chunk(self, slot: int, done: int, total: int) -> None:
        running = self._running[slot]
        running.chunks.append(done)
        assert 0 <= done <= total
        assert total == len(running.line.prompt) or running.rounds

    def _check(self, ended: Ended[StopReason]) -> None:
        running, poisoned = self._running[ended.slot], self._poisoned(ended.slot)
        line, tokens = running.line, running.tokens
        for done in running.rounds:
            assert min(done.spent.round_s, done.spent.verify_s) > 0
            if line.world.draft_knows and done.draft.drafter == "model":
                assert done.verdict.accepted == done.drafted, "the draft model knows"
        if running.most_rounds is not None:
            assert len(running.rounds) <= running.most_rounds, "all are cancelled, and it goes on"
        if ended.error is not None:
            if not (poisoned and isinstance(ended.error, PassFailed)):
                raise ended.error
            assert tokens == line.tokens[: len(tokens)]
        elif ended.value is StopReason.CANCELLED:
            assert self._all_stop or ended.slot in self._to_stop, "it was not cancelled"
            assert tokens == line.tokens[: len(tokens)]
        else:
            assert (tokens, ended.value) == (line.tokens, line.stop_reason)
        self._leave(ended.slot)

    def _poisoned(self, slot: int) -> bool:
        return any(slot in hooks.poison for hooks in self._hooks.values())

    def _leave(self, slot: int) -> None:
        running = self._running.pop(slot)
        running.policy.end()
        self._to_stop.discard(slot)
        for hooks in self._hooks.values():
            hooks.poison.pop(slot, None)
        self._to_evaluate += len(running.line.prompt)
        self._to_evaluate += sum(
            each.width + (each.verdict.branch is not None)
            for each in running.rounds
            if not each.is_first
        )

    def _policy(self, line: Line, slot: int) -> Policy:
        text, world = (*line.prompt, *line.tokens), line.world
        draft_model = None
        if Role.DRAFT_MODEL in self._sequences:
            draft_model = self._sequences[Role.DRAFT_MODEL].views[slot]
        drafters = drafters_of(world, draft_model, text)
        if world.drafter == "mad":
            return MadPolicy(tuple(drafters.values()), Random(world.whim), self._longest)
        if world.drafter == "auto" and self._random.random() < 0.7:
            able: Sequence[Drafter]
            able = [drafters[name] for name in ("lookup", "store", "model") if name in drafters]
            return PlansTwice(AdaptivePolicy(FLAT, self._longest, able, 0, self._answering, slot))
        if world.drafter in {"model", "lookup", "oracle"}:
            drafter = drafters.get(fixed_in(world), drafters["off"])
            return FixedPolicy(drafter, min(world.draft_length, self._longest))
        return policy_of(world, draft_model, text, self._longest)


def check_company(random: Random, make: Make = toy_sequences, vocabulary: str = SHARED) -> None:
    Company(random, make, vocabulary).run()
