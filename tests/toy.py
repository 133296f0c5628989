"""Doubles: models that are small tables, sequences of them, drafters and policies that behave badly.

A toy model's logits are a pure function of the last few tokens, so what it ought to say is
known without running it. `CachedModel` computes them from what its cache holds, as llama.cpp
does; a cache that is stale shows in the text.
"""

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from random import Random

import numpy as np
from numpy.typing import NDArray

from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.choose import Chooser
from localspec.decoding.drafters.drafter import Drafter, DraftForecast, Plan
from localspec.decoding.generation import Generation, Limits
from localspec.decoding.model import Logits, Pass, Passed, Role
from localspec.decoding.noise import Noise
from localspec.decoding.policy import Policy
from localspec.decoding.round import Draft, Round, StopReason
from localspec.decoding.scheduler import Scheduler
from localspec.errors import PassFailed
from localspec.options import SamplingParams

_CONTEXTS = 61
_CATCHES_UP = 16
"""Tokens that a draft model may be behind with in a pass that it shares."""


GREEDY = Chooser(SamplingParams(temperature=0), Noise(0))
SAMPLED = Chooser(SamplingParams(), Noise(0))


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Rows of logits, and which of them follows the last `window` tokens."""

    rows: NDArray[np.float32]
    window: int

    @property
    def n_vocab(self) -> int:
        return int(self.rows.shape[1])

    def row(self, context: Sequence[int]) -> NDArray[np.float32]:
        index = 0
        for token in context[-self.window :]:
            index = (index * 31 + token + 1) % len(self.rows)
        return np.asarray(self.rows[index])


def random_table(seed: int, n_vocab: int, window: int = 2, kind: str = "peaked") -> Table:
    """Return a table with rows that are peaked, flat, tied or full of holes.

    The last id never has a logit of -inf, so something can always be chosen.
    """
    rng = np.random.default_rng(seed)
    rows = rng.normal(0, 1, (_CONTEXTS, n_vocab))
    scale = {"peaked": 4.0, "flat": 0.3, "tied": 2.0, "holes": 2.0, "mixed": 1.0}[kind]
    rows *= scale
    if kind == "mixed":
        rows *= rng.choice([0.1, 1.0, 6.0], (_CONTEXTS, 1))
    if kind in {"tied", "mixed"}:
        rows = np.round(rows)
    if kind == "holes":
        rows[:, :-1][rng.random((_CONTEXTS, n_vocab - 1)) < 0.4] = -np.inf
    return Table(rows.astype(np.float32), window)


def related_table(table: Table, seed: int, n_vocab: int, noise: float) -> Table:
    rng = np.random.default_rng(seed)
    rows = rng.normal(0, 2, (len(table.rows), n_vocab)).astype(np.float32)
    shared = min(n_vocab, table.n_vocab)
    rows[:, :shared] = table.rows[:, :shared]
    rows[:, :shared] += rng.normal(0, noise, (len(rows), shared)).astype(np.float32)
    return Table(rows, table.window)


def counting(n_vocab: int, step: int = 1) -> Table:
    """Return a model that counts: with a step of 1, 4 follows 3, and 0 follows the last id."""
    rows = np.zeros((_CONTEXTS, n_vocab), dtype=np.float32)
    ids = np.arange(n_vocab)
    rows[ids + 1, (ids + step) % n_vocab] = 5  # with a window of 1, row i + 1 follows i
    return Table(rows, window=1)


@dataclass(frozen=True, slots=True)
class Asked:
    """One request that a model served: its rows (0 is prefill), its length, what it evaluated."""

    rows: int
    n_tokens: int
    evaluated: int


@dataclass(slots=True, eq=False)
class Countdown:
    """Cancels once, in the midst of the pass after `passes` more; None never does."""

    passes: int | None = None
    rang: bool = False

    def rings(self) -> bool:
        if self.passes is None or self.rang:
            return False
        self.passes -= 1
        self.rang = self.passes < 0
        return self.rang


@dataclass(slots=True, eq=False)
class CachedModel:
    """A `LanguageModel` over an explicit cache, with the rules of `LlamaSequence`.

    Rows are computed from what the cache holds, and lie in a buffer that the next call spoils.
    Where its countdown rings, half of a pass is evaluated before it raises `Cancelled`.
    """

    table: Table
    n_ctx: int
    cancel: Countdown = field(default_factory=Countdown)
    asked: list[Asked] = field(default_factory=list)
    cells: list[int] = field(default_factory=list)
    truncate_s: float = 0.0
    in_chunks: int = 0
    copies: bool = True
    owner: str = ""
    _buffer: Logits | None = None

    @property
    def n_vocab(self) -> int:
        return self.table.n_vocab

    def prefill(self, tokens: Sequence[int]) -> int:
        check_request(self, tokens, rows=0)
        keep = self.common_prefix(tokens)
        if keep < len(tokens):
            self.truncate(keep)
        todo = tokens[keep:]
        self._decode(todo, rows=0)
        self.asked.append(Asked(0, len(tokens), len(todo)))
        return len(todo)

    def logits(self, tokens: Sequence[int], rows: int) -> Logits:
        check_request(self, tokens, rows)
        keep = min(self.common_prefix(tokens), len(tokens) - rows)
        self.truncate(keep)
        todo = tokens[keep:]
        computed = self._decode(todo, rows)
        self.asked.append(Asked(rows, len(tokens), len(todo)))
        return computed

    def truncate(self, n_past: int) -> None:
        del self.cells[n_past:]

    def branch_row(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Return the logits after a branch, which ends `tokens`; what comes before it is what the cache holds."""
        return self.table.row([*self.cells[: len(tokens) - 1], tokens[-1]])

    @property
    def n_cached(self) -> int:
        return len(self.cells)

    def common_prefix(self, tokens: Sequence[int]) -> int:
        shorter = min(len(self.cells), len(tokens))
        return next((i for i in range(shorter) if self.cells[i] != tokens[i]), shorter)

    def _decode(self, tokens: Sequence[int], rows: int) -> Logits:
        if self._buffer is not None:
            self._buffer.fill(np.nan)
        if self.cancel.rings():
            self.cells += tokens[: len(tokens) // 2]
            raise Cancelled
        self._buffer = np.empty((rows, self.n_vocab), dtype=np.float32)
        for index, token in enumerate(tokens, rows - len(tokens)):
            self.cells.append(token)
            if index >= 0:
                self._buffer[index] = self.table.row(self.cells)
        return self._buffer


class UncachedModel(CachedModel):
    __slots__ = ()

    @property
    def n_cached(self) -> int:
        return 0

    def common_prefix(self, tokens: Sequence[int]) -> int:
        return 0

    def prefill(self, tokens: Sequence[int]) -> int:
        check_request(self, tokens, rows=0)
        self.asked.append(Asked(0, len(tokens), len(tokens)))
        return len(tokens)

    def logits(self, tokens: Sequence[int], rows: int) -> Logits:
        check_request(self, tokens, rows)
        self.asked.append(Asked(rows, len(tokens), len(tokens)))
        ends = range(len(tokens) - rows + 1, len(tokens) + 1)
        return np.stack([self.table.row(tokens[:end]) for end in ends])

    def branch_row(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        return self.table.row(tokens)


def check_request(model: CachedModel, tokens: Sequence[int], rows: int) -> None:
    assert len(tokens) <= model.n_ctx, f"{len(tokens)} tokens asked of n_ctx {model.n_ctx}"
    assert 0 <= rows <= len(tokens), f"{rows} rows asked of {len(tokens)} tokens"
    assert max(tokens, default=0) < model.n_vocab, "an id outside the vocabulary"


Model = CachedModel


@dataclass(slots=True, eq=False)
class ToySequences:
    views: Sequence[Model]
    flag: CancelFlag = field(default_factory=CancelFlag)
    n_batch: int = 1 << 16
    most_rows: int = 1 << 16
    on_pass: Callable[[], None] = lambda: None
    poison: dict[int, int] = field(default_factory=dict)
    passes: list[dict[int, int]] = field(default_factory=list)
    at_once: int = 1 << 16
    _buffer: Logits | None = None

    def chunk(self, slot: int) -> int:
        return min(self.at_once, self.n_batch)

    def missing(self, slot: int, request: Pass) -> int:
        cached = self.views[slot].common_prefix(request.tokens)
        return max(request.rows, len(request.tokens) - cached)

    def evaluate(self, slot: int, request: Pass, count: int) -> int:
        tokens, view = request.tokens, self.views[slot]
        end = min(view.common_prefix(tokens), len(tokens) - request.rows) + count
        assert count > 0, "a chunk of nothing"
        assert end <= len(tokens) - request.rows, "a chunk that takes rows away"
        self._evaluate([(slot, Pass(request.role, tokens[:end], 0))])
        return count

    def together(self, asked: Sequence[tuple[int, Pass]]) -> list[Logits]:
        if len(asked) > 1:
            behind = [self.missing(slot, request) - request.rows for slot, request in asked]
            catches_up = 0 if asked[0][1].role is Role.TARGET else _CATCHES_UP
            assert max(behind) <= catches_up, "prompts go alone"
        self._buffer = rows = np.concatenate(self._evaluate(asked))
        assert len(rows) <= self.most_rows, (
            f"{len(rows)} rows of a pass that gives {self.most_rows}"
        )
        ends = accumulate(request.rows for _, request in asked)
        return [
            rows[end - request.rows : end] for end, (_, request) in zip(ends, asked, strict=True)
        ]

    def compact(self, running: Collection[int]) -> None:
        assert len(set(running)) == len(running) <= len(self.views)

    def _evaluate(self, asked: Sequence[tuple[int, Pass]]) -> list[Logits]:
        assert len({slot for slot, _ in asked}) == len(asked), "a slot is asked twice"
        if self._buffer is not None:
            self._buffer.fill(np.nan)
            self._buffer = None
        self.on_pass()
        n_tokens = {slot: self.missing(slot, request) for slot, request in asked}
        assert sum(n_tokens.values()) <= self.n_batch, f"{n_tokens} tokens of {self.n_batch}"
        self.passes.append(n_tokens)
        answers: list[Logits] = []
        for slot, request in asked:
            if self.flag.is_set and len(answers) >= len(asked) // 2:
                raise Cancelled
            if len(request.tokens) > self.poison.get(slot, self.views[slot].n_ctx):
                raise PassFailed(f"nothing is evaluated of {slot}")
            if request.rows:
                answers.append(self._rows(self.views[slot], request))
            else:
                self.views[slot].prefill(request.tokens)
        self.on_pass()
        return answers

    def _rows(self, view: Model, request: Pass) -> Logits:
        tokens, count = request.tokens, len(request.branches)
        if not count:
            return view.logits(tokens, request.rows).copy()
        chain = request.chain
        n_past = len(tokens) - request.rows
        assert n_past < min(request.branches), "a branch from what was evaluated before"
        assert max(request.branches) < len(chain), "a branch that competes with nothing"
        assert list(request.branches) == sorted(set(request.branches), reverse=True)
        assert len(tokens) <= view.n_ctx, "branches take cells, too"
        rows = [*view.logits(chain, request.rows - count)]
        view.asked[-1] = replace(
            view.asked[-1], rows=request.rows, evaluated=view.asked[-1].evaluated + count
        )
        for place, token in zip(request.branches, tokens[len(chain) :], strict=True):
            rows.append(view.branch_row([*chain[:place], token]))
        return np.stack(rows)


class Unforeseen:
    reserve = 0.0

    def begin(self, tokens: Sequence[int], chooser: Chooser) -> None:
        assert isinstance(chooser, Chooser)

    def forecast(self, tokens: Sequence[int]) -> DraftForecast | None:
        return None

    def learn(self, done: Round) -> None:
        assert done.confirmed


@dataclass(frozen=True)
class ScriptedDrafter(Unforeseen):
    """Proposes the same tokens whatever the text is, as many as it may."""

    tokens: tuple[int, ...]
    name: str = "scripted"

    def propose(
        self, tokens: Sequence[int], plan: Plan, chooser: Chooser
    ) -> Generator[Pass, Logits, Draft]:
        yield from ()
        drafted = self.tokens[: max(0, plan.draft_length)]
        return Draft(drafted, (0.5,) * len(drafted), self.name)


@dataclass(frozen=True)
class Oracle(Unforeseen):
    """Knows the text that is going to be, goes on past its end, and lies now and then."""

    text: Sequence[int]
    n_vocab: int
    lies: float
    random: Random
    name: str = "oracle"

    def propose(
        self, tokens: Sequence[int], plan: Plan, chooser: Chooser
    ) -> Generator[Pass, Logits, Draft]:
        yield from ()
        drafted = []
        for position in range(len(tokens), len(tokens) + plan.draft_length):
            known = position < len(self.text) and self.random.random() >= self.lies
            drafted.append(self.text[position] if known else self.random.randrange(self.n_vocab))
        return Draft(tuple(drafted), (0.5,) * len(drafted), self.name)


class Branching:
    """A drafter whose drafts have branches wherever there is room, some of them right."""

    def __init__(
        self, within: Drafter, most: int, text: Sequence[int], n_vocab: int, random: Random
    ) -> None:
        self.within, self.most, self.text = within, most, text
        self.n_vocab, self.random = n_vocab, random
        self.name, self.reserve = within.name, within.reserve
        self.begin, self.forecast, self.learn = within.begin, within.forecast, within.learn

    def propose(
        self, tokens: Sequence[int], plan: Plan, chooser: Chooser
    ) -> Generator[Pass, Logits, Draft]:
        length = plan.draft_length
        fewer = replace(plan, draft_length=max(min(length, 1), length - self.most))
        draft = yield from self.within.propose(tokens, fewer, chooser)
        room = min(self.most, length - len(draft.tokens)) - len(draft.branches)
        free = [at for at in range(len(draft.tokens)) if at not in draft.branches]
        new = self.random.sample(free, max(0, min(room, len(free))))
        others = list(draft.alternatives) or [()] * len(draft.tokens)
        for at in new:
            place, kind = len(tokens) + at, self.random.random()
            if kind < 0.5 and place < len(self.text):
                others[at] = (self.text[place],)
            elif kind < 0.7 or not others[at]:
                others[at] = (self.random.randrange(self.n_vocab),)
        branches = tuple(sorted((*draft.branches, *new), reverse=True))
        return replace(draft, alternatives=tuple(others), branches=branches)


@dataclass(frozen=True, slots=True)
class MadPolicy:
    """Another drafter and another length every round: negative, nothing, far too much."""

    drafters: tuple[Drafter, ...]
    random: Random
    longest: int = 1000
    name: str = "mad"

    def begin(self, tokens: Sequence[int], chooser: Chooser) -> None:
        for drafter in self.drafters:
            drafter.begin(tokens, chooser)

    def plan(self, tokens: Sequence[int], room: int) -> Plan:
        length = min(self.random.choice((-3, 0, 1, 1, 2, 3, 4, room, 1000)), self.longest)
        drafter = self.random.choice(self.drafters)
        forecast = drafter.forecast(tokens)
        if forecast is None or self.random.random() < 0.3:
            return Plan(drafter, length)
        most = min(self.random.randrange(9), self.longest)
        row_s = self.random.choice((0.0, 0.1, 1.0))
        verify_s = [1.0 + k * row_s for k in range(most + 1)]
        branches = self.random.choice((0, 3, 7))
        return Plan(drafter, most, 1.5, forecast, verify_s, branches)

    def learn(self, done: Round) -> None:
        assert len(done.confirmed) <= done.verdict.confirmed
        assert done.spent.round_s > 0
        for drafter in self.drafters:
            drafter.learn(done)

    def end(self) -> None:
        pass


class Stopwatch:
    def __init__(self, step_s: float = 1.0) -> None:
        self.now_s = 0.0
        self.step_s = step_s

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


@dataclass(frozen=True, slots=True)
class Reply:
    rounds: tuple[Round, ...]
    generation: Generation

    @property
    def stop_reason(self) -> StopReason:
        assert self.generation.stop_reason is not None
        return self.generation.stop_reason

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple(token for each in self.rounds for token in each.confirmed)


def to_its_end(generation: Generation) -> Generator[Pass, Passed, Reply]:
    rounds = []
    while (done := (yield from generation.advance())) is not None:
        rounds.append(done)
    return Reply(tuple(rounds), generation)


def run_to_end(
    prompt: Sequence[int],
    models: Mapping[Role, Model],
    policy: Policy,
    chooser: Chooser,
    limits: Limits,
    clock: Callable[[], float] | None = None,
) -> Reply:
    clock, flag = clock or Stopwatch(), CancelFlag()
    sequences = {role: ToySequences([model], flag) for role, model in models.items()}
    scheduler = Scheduler[Reply](sequences, flag, clock)
    generation = Generation(prompt, models[Role.TARGET], policy, chooser, limits, clock)
    ended = scheduler.start(0, to_its_end(generation))
    while not ended:
        ended = scheduler.step()
    policy.end()
    if ended[0].error is not None:
        raise ended[0].error
    assert ended[0].value is not None
    return ended[0].value


@dataclass(frozen=True, slots=True)
class Brackets:
    """An `Automaton`: brackets that match. Id 0 opens, 1 closes; of the others, some may come within some.

    It may end where none is open, and nothing binds what follows an end. A state is what is open,
    and whether it ended.
    """

    eog: tuple[int, ...]
    deepest: int
    always: int = -1
    steps: list[int] = field(default_factory=lambda: [0])

    def start(self) -> tuple[int, bool]:
        return (0, False)

    def step(self, state: tuple[int, bool], token: int) -> tuple[int, bool]:
        self.steps[0] += 1
        opened, ended = state
        return (opened + {0: 1, 1: -1}.get(token, 0), ended or token in self.eog)

    def forced(self, state: tuple[int, bool]) -> tuple[int, ...]:
        return ()  # where one id alone may follow, it does not tell

    def allows(self, state: tuple[int, bool], ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.array([self._allows(state, each) for each in ids.tolist()], dtype=np.bool_)

    def _allows(self, state: tuple[int, bool], token: int) -> bool:
        opened, ended = state
        if ended or token == self.always:
            return True
        if token in self.eog:
            return opened == 0
        if token == 0:
            return opened < self.deepest
        return opened > 0 and (token == 1 or token % 3 != opened % 3)
