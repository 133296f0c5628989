"""ModelDrafter: a small language model proposes, choosing under the target's own noise."""

from collections.abc import Collection, Generator, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from localspec.decoding.choose import Chooser, Ranking, choose_with_gap
from localspec.decoding.drafter import Draft, Hindsight, NeverStopping, Stopping
from localspec.decoding.model import Logits, Pass, Role
from localspec.decoding.sampling import Candidates
from localspec.errors import PassFailed


@dataclass(frozen=True, slots=True)
class ModelDrafter:
    """Proposes what the draft model would choose, one pass per token.

    Args:
        n_ctx: the draft model's context; beyond it nothing is proposed.
        n_vocab: number of ids that both models share; ids beyond it are masked out of the draft,
            and nothing is proposed after one of them.
        eog: ids that end a generation; nothing useful follows them.
        stopping: asked after every token whether to go on.
        most_rows: rows of logits that a pass of the draft model may ask for.
    """

    n_ctx: int
    n_vocab: int
    eog: Collection[int]
    stopping: Stopping = field(default_factory=NeverStopping)
    name: str = "model"
    most_rows: int = 1

    def propose(
        self, tokens: Sequence[int], draft_length: int, chooser: Chooser
    ) -> Generator[Pass, Logits, Draft]:
        """Propose up to `draft_length` tokens; fewer when one of them ends the generation,
        or when the next one is not worth its pass.
        """
        prefix = list(tokens)
        if max(prefix) >= self.n_vocab:
            return Draft(drafter=self.name)
        confidences: list[float] = []
        gaps: list[float] = []
        rankings: list[Ranking] = []
        hindsight: tuple[Hindsight, ...] = ()
        look_back = min(self.stopping.look_back, len(prefix) - 1, self.most_rows - 1)
        for drafted in range(min(draft_length, self.n_ctx - len(prefix))):
            rows = 1 if drafted else 1 + look_back
            logits = yield Pass(Role.DRAFT_MODEL, [*prefix], rows=rows)
            try:
                if rows > 1:
                    hindsight = tuple(self._look_back(logits[:-1], prefix, chooser))
                    if not self.stopping.begins(hindsight):
                        break
                kept, (token, gap, ranking) = self._chosen(logits[-1], prefix, chooser)
            except PassFailed:
                break  # no shared id may follow, or the row is unusable: the target goes on alone
            confidences.append(float(kept.probabilities()[kept.ids.searchsorted(token)]))
            gaps.append(gap)
            rankings.append(ranking)
            prefix.append(token)
            if token in self.eog or not self.stopping.goes_on(gaps):
                break
        proposed, kept_length = tuple(prefix[len(tokens) :]), self.stopping.keeps(gaps)
        return Draft(
            proposed[:kept_length],
            tuple(confidences[:kept_length]),
            self.name,
            tuple(gaps),
            proposed[kept_length:],
            tuple(rankings),
            hindsight,
        )

    def _look_back(
        self, rows: Logits, text: Sequence[int], chooser: Chooser
    ) -> Iterator[Hindsight]:
        """Yield what would have been proposed for the last tokens of `text`, a row for each."""
        for at, row in enumerate(rows, start=len(text) - len(rows)):
            _, (token, gap, _) = self._chosen(row, text[:at], chooser)
            yield Hindsight(gap, token == text[at])

    def _chosen(
        self, row: NDArray[np.float32], prefix: Sequence[int], chooser: Chooser
    ) -> tuple[Candidates, tuple[int, float, Ranking]]:
        """Return what is proposed to follow `prefix`, and what it was chosen from."""
        row = row[: self.n_vocab]
        kept = chooser.candidates(row, prefix)
        rivals = chooser.rivals(kept, row, prefix)
        return kept, choose_with_gap(kept, rivals, chooser.noise, len(prefix))
