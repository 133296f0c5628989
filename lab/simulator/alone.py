"""Alone: one model as the sequences that a scheduler drives."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from lab.simulator.pair import VirtualModel
from localspec.decoding.model import Logits, Pass
from localspec.decoding.scheduler import SequenceView

_MOST = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Alone:
    """The one sequence of a model, which takes passes of any size.

    Args:
        view: the model.
    """

    view: VirtualModel
    most_rows: int = _MOST
    n_batch: int = _MOST
    chunk: int = _MOST

    @property
    def views(self) -> Sequence[SequenceView]:
        return (self.view,)

    def missing(self, slot: int, request: Pass) -> int:
        cached = self.view.common_prefix(request.tokens)
        return max(request.rows, len(request.tokens) - cached)

    def evaluate(self, slot: int, request: Pass, count: int) -> None:
        tokens = request.tokens
        cached = min(self.view.common_prefix(tokens), len(tokens) - request.rows)
        self.view.prefill(tokens[: cached + count])

    def together(self, asked: Sequence[tuple[int, Pass]]) -> Sequence[Logits]:
        return [self.view.branched(request) for _, request in asked]

    def close_ranks(self, running: Collection[int]) -> None:
        pass
