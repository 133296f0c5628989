"""The virtual pair: what its models say is scripted, what their passes cost moves a clock."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from localspec.decoding.model import Logits, Pass, Role
from localspec.decoding.noise import Noise
from localspec.decoding.scheduler import SequenceView
from tests.decoding.simulator.world import MARGIN, World

_UNLIKELY = -60.0
_MOST = 1 << 20


@dataclass(slots=True, eq=False)
class Machine:
    """The clock that passes move, with jitter, and the account of what they take on average."""

    world: World
    now_s: float = 0.0
    expected_s: float = 0.0
    n_confirmed: int = 0
    passes: dict[Role, int] = field(default_factory=lambda: dict.fromkeys(Role, 0))
    _rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng((self.world.seed, 2))

    def __call__(self) -> float:
        return self.now_s

    def charge(self, role: Role, width: int, depth: int) -> None:
        """Let the time pass that one pass takes."""
        seconds = self.world.seconds(role, width, depth, self.n_confirmed)
        spread = self.world.costs.jitter
        self.expected_s += seconds
        self.now_s += seconds * float(np.exp(self._rng.normal(-(spread**2) / 2, spread)))
        self.passes[role] += 1


@dataclass(slots=True, eq=False)
class VirtualModel:
    """A `LanguageModel` that follows the script; each pass costs what its width costs."""

    role: Role
    machine: Machine
    cells: list[int] = field(default_factory=list)
    truncate_s: float = 0.0
    in_chunks: int = 0
    copies: bool = True
    owner: str = ""
    fresh: int = 1 << 20
    longest: int = 1 << 20
    in_one_pass: bool = False
    _rows: Logits = field(init=False)

    def __post_init__(self) -> None:
        self._rows = np.empty((1, self.n_vocab), dtype=np.float32)

    @property
    def n_cached(self) -> int:
        return len(self.cells)

    @property
    def n_vocab(self) -> int:
        return self.machine.world.n_vocab

    @property
    def n_ctx(self) -> int:
        return len(self.machine.world.text)

    def common_prefix(self, tokens: Sequence[int]) -> int:
        """Return what need not be evaluated; heads begin with their latest tokens, see `LlamaHeads`."""
        return max(self._common_prefix(tokens), len(tokens) - self.fresh)

    def _common_prefix(self, tokens: Sequence[int]) -> int:
        n = min(len(self.cells), len(tokens))
        known, asked = self.cells[:n], list(tokens[:n])
        if known == asked:
            return n
        early = max(0, n - 80)
        begin = early if known[:early] == asked[:early] else 0
        return next(i for i in range(begin, n) if known[i] != asked[i])

    def prefill(self, tokens: Sequence[int]) -> int:
        return self._evaluate(tokens, rows=0)

    def logits(self, tokens: Sequence[int], rows: int) -> Logits:
        return self.branched(Pass(self.role, tokens, rows))

    def branched(self, request: Pass) -> Logits:
        """Return the rows of a pass that may have branches."""
        tokens, rows, chain = request.tokens, request.rows, request.chain
        self._evaluate(tokens, rows)
        self.cells = list(chain)
        world, end = self.machine.world, self._position(chain)
        if self.role is Role.TARGET and world.adversary is not None:
            n_confirmed = self.machine.n_confirmed
            world.adversary.before(world, chain[n_confirmed:], n_confirmed)
        computed = self._empty_rows(rows)
        branches = [place + 1 for place in request.branches]
        places = [*range(end - rows + len(branches) + 1, end + 1), *branches]
        for row, position in enumerate(places):
            if self.role is Role.TARGET:
                computed[row, world.text[position]] = 0.0
            else:
                self._fill_draft_row(computed[row], position)
        return computed

    def _empty_rows(self, count: int) -> Logits:
        """Return rows that say nothing yet, in the memory of the last pass's, as llama.cpp has it."""
        if len(self._rows) < count:
            self._rows = np.empty((count, self.n_vocab), dtype=np.float32)
        rows = self._rows[:count]
        rows[:] = _UNLIKELY
        return rows

    def truncate(self, n_past: int) -> None:
        del self.cells[n_past:]

    def knows(self, tokens: Sequence[int]) -> bool:
        """Return whether heads could draft after `tokens`; see `HeadsOfTarget`."""
        return True

    def _evaluate(self, tokens: Sequence[int], rows: int) -> int:
        keep = min(self.common_prefix(tokens), len(tokens) - rows)
        width = len(tokens) - keep
        if width:
            self.machine.charge(self.role, width, len(tokens))
        self.cells = list(tokens)
        return width

    def _fill_draft_row(self, row: NDArray[np.float32], position: int) -> None:
        """Make the two best *perturbed* scores lie as far apart as scripted."""
        world = self.machine.world
        best, second = world.text[position], world.wrong[position]
        if not world.agrees(position):
            best, second = second, best
            if not world.seconds_right[position]:
                second = next(
                    each % world.n_vocab
                    for each in (best + 1, best + 2)
                    if each % world.n_vocab != world.text[position]
                )
        scores = np.array([world.gap(position), 0.0])
        if world.temperature > 0:
            ids = np.array([best, second], dtype=np.int64)
            gumbel = Noise(world.seed).gumbel(position, ids)
            scores = world.temperature * (scores - gumbel)
        row[[best, second]] = scores

    def _position(self, tokens: Sequence[int]) -> int:
        """Return the position that follows `tokens`, also where they begin in mid-text."""
        confirmed = self.machine.world.text[: self.machine.n_confirmed]
        n_common = len(confirmed)
        if len(tokens) >= n_common and list(tokens[:n_common]) == confirmed:
            return len(tokens)
        for drafted in range(min(len(tokens), MARGIN)):
            known = list(tokens[: len(tokens) - drafted])[-24:]
            if known == confirmed[-len(known) :]:
                return n_common + drafted
        raise AssertionError("a request that does not continue the text")


@dataclass(frozen=True, slots=True, eq=False)
class Alone:
    """The one sequence of a model, which takes passes of any size."""

    view: VirtualModel
    most_rows: int = _MOST
    n_batch: int = _MOST

    @property
    def views(self) -> Sequence[SequenceView]:
        return (self.view,)

    def chunk(self, slot: int) -> int:
        return self.n_batch

    def missing(self, slot: int, request: Pass) -> int:
        cached = self.view.common_prefix(request.tokens)
        return max(request.rows, len(request.tokens) - cached)

    def evaluate(self, slot: int, request: Pass, count: int) -> int:
        tokens = request.tokens
        cached = min(self.view.common_prefix(tokens), len(tokens) - request.rows)
        self.view.prefill(tokens[: cached + count])
        return count

    def together(self, asked: Sequence[tuple[int, Pass]]) -> Sequence[Logits]:
        return [self.view.branched(request) for _, request in asked]

    def compact(self, running: Collection[int]) -> None:
        pass
