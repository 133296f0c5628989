"""GrowingDraft: what a draft model proposes, token by token, while its passes are made."""

from collections.abc import Callable, Collection, Iterator, Sequence

from localspec.decoding.choose import Chooser, choose_with_gap
from localspec.decoding.drafters.backoff import Hindsight
from localspec.decoding.drafters.early_stopping import EarlyStopping
from localspec.decoding.model import Logits
from localspec.decoding.round import Draft
from localspec.errors import PassFailed


class GrowingDraft:
    """Takes the rows of one pass after the other, and says with which token the next goes on; see `Pass.more`.

    Args:
        text: confirmed so far.
        most: tokens to propose.
        n_vocab: ids from there on are masked out.
        eog: ids that nothing is proposed after.
        chooser: the reply's.
        stopping: says whether the next token is worth its pass; None goes on.
        chance: of a token to be accepted, by the gap that it was chosen with.

    Attributes:
        gaps: of the proposed tokens, see `Draft`.
        hindsight: what would have been proposed for the latest tokens of the text.
    """

    def __init__(
        self,
        text: Sequence[int],
        most: int,
        n_vocab: int,
        eog: Collection[int],
        chooser: Chooser,
        stopping: EarlyStopping | None,
        chance: Callable[[float], float],
    ) -> None:
        self._prefix = list(text)
        self._begin, self._end = len(text), len(text) + most
        self._n_vocab = n_vocab
        self._eog = eog
        self._chooser = chooser
        self._stopping = stopping
        self._grown = None if stopping is None else stopping.grow()
        self._chance = chance
        self._confidences: list[float] = []
        self._alternatives: list[tuple[int, ...]] = []
        self.gaps: list[float] = []
        self.hindsight: list[Hindsight] = []

    @property
    def tokens(self) -> tuple[int, ...]:
        """All that was proposed, whether or not the target is to verify it."""
        return tuple(self._prefix[self._begin :])

    @property
    def compared(self) -> tuple[bool, ...]:
        """Of the latest tokens of the text, which were to be compared, see `EarlyStopping`."""
        return () if self._stopping is None else self._stopping.compared

    def __call__(self, rows: Logits) -> int | None:
        """Propose a token, and return it if another is to follow."""
        prefix, stopping = self._prefix, self._stopping
        try:
            if len(rows) > 1 and stopping is not None:
                self.hindsight += self._look_back(rows[:-1])
                if not stopping.begins(self.hindsight):
                    return None
            token, confidence, gap, others = self._chosen(rows[-1], prefix)
        except PassFailed:
            return None  # no shared id may follow, or the row is unusable: the target goes on alone
        self._confidences.append(confidence)
        self._alternatives.append(others)
        self.gaps.append(gap)
        prefix.append(token)
        goes_on = self._grown is None or self._grown.goes_on(self._chance(gap))
        return token if goes_on and len(prefix) < self._end and token not in self._eog else None

    def for_target(self, drafter: str) -> Draft:
        """Return what is worth verifying of it, under the name of its drafter."""
        kept = len(self.gaps) if self._grown is None else self._grown.kept
        return Draft(
            self.tokens[:kept],
            tuple(self._confidences[:kept]),
            drafter,
            tuple(self.gaps[:kept]),
            tuple(self._alternatives[:kept]),
        )

    def _look_back(self, rows: Logits) -> Iterator[Hindsight]:
        """Yield what would have been proposed for the last tokens of the text, a row for each."""
        text = self._prefix
        for at, row in enumerate(rows, start=len(text) - len(rows)):
            token, _, gap, _ = self._chosen(row, text[:at])
            yield Hindsight(gap, token == text[at])

    def _chosen(
        self, row: Logits, prefix: Sequence[int]
    ) -> tuple[int, float, float, tuple[int, ...]]:
        """Return what is proposed to follow `prefix`, how surely, by which gap, and the next choices."""
        row, chooser = row[: self._n_vocab], self._chooser
        kept = chooser.candidates(row, prefix)
        rivals = chooser.rivals(kept, row, prefix)
        token, gap, others = choose_with_gap(kept, rivals, chooser.noise, len(prefix))
        return token, float(kept.probabilities()[kept.ids.searchsorted(token)]), gap, others
