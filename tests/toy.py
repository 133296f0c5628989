"""Doubles: models that are small tables, drafters and policies that behave badly.

A toy model's logits are a pure function of the last few tokens, so what it ought to say is
known without running it. `CachedModel` computes them from what its cache holds, as llama.cpp
does; a cache that is stale shows in the text.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np
from localspec.decoding.drafter import Draft, Drafter
from localspec.decoding.generate import Confirmed, Limits, StopReason, drive
from localspec.decoding.timings import Timings
from numpy.typing import NDArray

from localspec.decoding.cancel import Cancelled
from localspec.decoding.choose import Chooser
from localspec.decoding.model import LanguageModel, Logits, Pass, Role
from localspec.decoding.policy import Plan, Policy
from localspec.decoding.round import Round, Spent

_CONTEXTS = 61


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Rows of logits, and which of them follows the last `window` tokens."""

    rows: NDArray[np.float32]
    window: int

    @property
    def n_vocab(self) -> int:
        return int(self.rows.shape[1])

    def row(self, context: Sequence[int]) -> NDArray[np.float32]:
        """Return the logits that follow `context`."""
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
    """Return a draft model's table: the target's with noise, cut or widened to `n_vocab`."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(0, 2, (len(table.rows), n_vocab)).astype(np.float32)
    shared = min(n_vocab, table.n_vocab)
    rows[:, :shared] = table.rows[:, :shared]
    rows[:, :shared] += rng.normal(0, noise, (len(rows), shared)).astype(np.float32)
    return Table(rows, table.window)


@dataclass(frozen=True, slots=True)
class Asked:
    """One request that a model served: its rows (0 is prefill), its length, what it evaluated."""

    rows: int
    n_tokens: int
    evaluated: int


@dataclass(slots=True, eq=False)
class UncachedModel:
    """A `LanguageModel` that looks every row up afresh."""

    table: Table
    n_ctx: int
    asked: list[Asked] = field(default_factory=list)

    @property
    def n_vocab(self) -> int:
        return self.table.n_vocab

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

    def truncate(self, n_past: int) -> None:
        pass


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
    """A `LanguageModel` over an explicit cache, with the rules of `LlamaContext`.

    Rows are computed from what the cache holds, and lie in a buffer that the next call spoils.
    Where its countdown rings, half of a pass is evaluated before it raises `Cancelled`.
    """

    table: Table
    n_ctx: int
    cancel: Countdown = field(default_factory=Countdown)
    asked: list[Asked] = field(default_factory=list)
    cells: list[int] = field(default_factory=list)
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

    def common_prefix(self, tokens: Sequence[int]) -> int:
        """Return how many of the cached tokens `tokens` begins with."""
        shorter = min(len(self.cells), len(tokens))
        return next((i for i in range(shorter) if self.cells[i] != tokens[i]), shorter)

    def _decode(self, tokens: Sequence[int], rows: int) -> Logits:
        if self._buffer is not None:
            self._buffer.fill(np.nan)
        if self.cancel.rings():
            self.cells += tokens[: len(tokens) // 2]
            raise Cancelled
        computed = np.empty((len(tokens), self.n_vocab), dtype=np.float32)
        for index, token in enumerate(tokens):
            self.cells.append(token)
            computed[index] = self.table.row(self.cells)
        self._buffer = computed[len(tokens) - rows :]
        return self._buffer


def check_request(model: UncachedModel | CachedModel, tokens: Sequence[int], rows: int) -> None:
    """Fail on a request that llama.cpp would refuse."""
    assert len(tokens) <= model.n_ctx, f"{len(tokens)} tokens asked of n_ctx {model.n_ctx}"
    assert 0 <= rows <= len(tokens), f"{rows} rows asked of {len(tokens)} tokens"
    assert all(0 <= token < model.n_vocab for token in tokens), "an id outside the vocabulary"


@dataclass(frozen=True, slots=True)
class ScriptedDrafter:
    """Proposes the same tokens whatever the text is, as many as it may."""

    tokens: tuple[int, ...]
    name: str = "scripted"

    def propose(
        self, tokens: Sequence[int], draft_length: int, chooser: Chooser
    ) -> Generator[Pass, Logits, Draft]:
        yield from ()
        drafted = self.tokens[: max(0, draft_length)]
        return Draft(drafted, (0.5,) * len(drafted), self.name)


@dataclass(frozen=True, slots=True)
class Oracle:
    """Knows the text that is going to be, goes on past its end, and lies now and then."""

    text: tuple[int, ...]
    n_vocab: int
    lies: float
    random: Random
    name: str = "oracle"

    def propose(
        self, tokens: Sequence[int], draft_length: int, chooser: Chooser
    ) -> Generator[Pass, Logits, Draft]:
        yield from ()
        drafted = []
        for position in range(len(tokens), len(tokens) + draft_length):
            known = position < len(self.text) and self.random.random() >= self.lies
            drafted.append(self.text[position] if known else self.random.randrange(self.n_vocab))
        return Draft(tuple(drafted), (0.5,) * len(drafted), self.name)


@dataclass(frozen=True, slots=True)
class MadPolicy:
    """Another drafter and another length every round: negative, nothing, far too much."""

    drafters: tuple[Drafter, ...]
    random: Random
    drafter_name: str = "mad"
    uses_draft_model: bool = True

    def begin(self, *, greedy: bool) -> None:
        assert isinstance(greedy, bool)

    def plan(self, tokens: Sequence[int], room: int, lag: int) -> Plan:
        assert 0 <= lag <= len(tokens)
        length = self.random.choice((-3, 0, 1, 1, 2, 3, 4, room, 1000))
        return Plan(self.random.choice(self.drafters), length, self.random.random() < 0.5)

    def learn(self, done: Round, spent: Spent) -> None:
        assert len(done.confirmed) == done.verdict.accepted + 1
        assert spent.total_s >= 0


class Stopwatch:
    """A clock that moves one second with every look at it, or by hand."""

    def __init__(self, step_s: float = 1.0) -> None:
        self.now_s = 0.0
        self.step_s = step_s

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


@dataclass(frozen=True, slots=True)
class Reply:
    """All that one generation handed out."""

    rounds: tuple[Confirmed, ...]
    stop_reason: StopReason

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple(token for confirmed in self.rounds for token in confirmed.tokens)


def run_to_end(
    prompt: Sequence[int],
    models: Mapping[Role, LanguageModel],
    policy: Policy,
    chooser: Chooser,
    limits: Limits,
    timings: Timings | None = None,
) -> Reply:
    """Drive a generation to its end."""
    generation = drive(
        prompt, models, policy, chooser, limits, timings or Timings(clock=Stopwatch())
    )
    rounds = []
    while True:
        try:
            rounds.append(next(generation))
        except StopIteration as finished:
            return Reply(tuple(rounds), finished.value)


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

    def allows(self, state: tuple[int, bool], ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        opened, ended = state
        if ended:
            return np.ones(ids.size, dtype=np.bool_)
        ends = np.isin(ids, self.eog)
        inner = (ids % 3 != opened % 3) & (ids > 1) & ~ends & (opened > 0)
        opens = (ids == 0) & (opened < self.deepest) & ~ends
        closes = (ids == 1) & (opened > 0) & ~ends
        return np.asarray(inner | opens | closes | (ends & (opened == 0)) | (ids == self.always))
