"""ModelDrafter: a small language model proposes, choosing under the target's own noise."""

from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass, field

from localspec.decoding.choose import Chooser, Ranking, choose_with_gap
from localspec.decoding.drafter import Draft, NeverStopping, Stopping
from localspec.decoding.model import Logits, Pass, Role
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
    """

    n_ctx: int
    n_vocab: int
    eog: Collection[int]
    stopping: Stopping = field(default_factory=NeverStopping)
    name: str = "model"

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
        for _ in range(min(draft_length, self.n_ctx - len(prefix))):
            logits = yield Pass(Role.DRAFT_MODEL, [*prefix], rows=1)
            row = logits[0, : self.n_vocab]
            try:
                kept = chooser.candidates(row, prefix)
            except PassFailed:
                break  # no shared id may follow, or the row is unusable: the target goes on alone
            rivals = chooser.rivals(kept, row, prefix)
            token, gap, ranking = choose_with_gap(kept, rivals, chooser.noise, len(prefix))
            confidences.append(float(kept.probabilities()[kept.ids.searchsorted(token)]))
            gaps.append(gap)
            rankings.append(ranking)
            prefix.append(token)
            if token in self.eog or not self.stopping.goes_on(gaps):
                break
        drafted, kept_length = tuple(prefix[len(tokens) :]), self.stopping.keeps(gaps)
        return Draft(
            drafted[:kept_length],
            tuple(confidences[:kept_length]),
            self.name,
            tuple(gaps),
            drafted[kept_length:],
            tuple(rankings),
        )
