"""LookupDrafter: proposes what followed the last time the same n-gram occurred."""

from collections.abc import Collection, Generator, Sequence

from localspec.decoding.choose import Chooser
from localspec.decoding.drafter import Draft
from localspec.decoding.model import Logits, Pass

_TRIED = 16


class LookupDrafter:
    """Copies from the prompt and from what was said before; costs no pass of any model.

    Keeps an index of the n-grams that it has seen, extended as the text grows and cut back
    where a new request departs from it; so asking twice gives the same answer.

    Args:
        eog: ids that end a generation; nothing useful follows them.
        min_match: tokens at the end of the text that must have occurred before.
        max_match: a match is not followed back further than this.

    Source: prompt lookup decoding, Saxena 2023; longest match first, the latest among equals.
    """

    name = "lookup"

    def __init__(self, eog: Collection[int], min_match: int = 5, max_match: int = 32) -> None:
        self._eog = eog
        self._min_match = min_match
        self._max_match = max_match
        self._tokens: list[int] = []
        self._ends: dict[tuple[int, ...], list[int]] = {}

    def propose(
        self,
        tokens: Sequence[int],
        draft_length: int,
        chooser: Chooser,
    ) -> Generator[Pass, Logits, Draft]:
        """Propose the continuation of the longest earlier match; nothing without a match."""
        yield from ()
        if draft_length < 1:
            return Draft(drafter=self.name)
        self._index(tokens)
        source, length = self._longest_match()
        if length == 0:
            return Draft(drafter=self.name)
        text = self._tokens
        drafted: list[int] = []
        for at in range(source, source + draft_length):
            # A match that reaches into the end of the text goes on in its own copy.
            token = text[at] if at < len(text) else drafted[at - len(text)]
            drafted.append(token)
            if token in self._eog:
                break
        drafted = drafted[: chooser.admitted(tokens, drafted)]
        # Not calibrated: an order among drafts, longer matches being surer.
        confidence = length / (length + 1)
        return Draft(tuple(drafted), (confidence,) * len(drafted), self.name)

    def _index(self, tokens: Sequence[int]) -> None:
        """Make the index cover exactly `tokens`."""
        known = len(self._tokens)
        if list(tokens[:known]) != self._tokens:
            self._tokens.clear()
            self._ends.clear()
        n = self._min_match
        for end in range(max(len(self._tokens), n - 1) + 1, len(tokens) + 1):
            self._ends.setdefault(tuple(tokens[end - n : end]), []).append(end)
        self._tokens = list(tokens)

    def _longest_match(self) -> tuple[int, int]:
        """Return where the best match ends and its length; (0, 0) without a match."""
        text = self._tokens
        ends = self._ends.get(tuple(text[-self._min_match :]), [])
        best_end, best_length = 0, 0
        for end in reversed(ends[-_TRIED - 1 : -1]):  # the last entry is the end of the text itself
            length = self._min_match
            longest = min(self._max_match, end)
            while length < longest and text[end - length - 1] == text[-length - 1]:
                length += 1
            if length > best_length:
                best_end, best_length = end, length
        return best_end, best_length
