"""WindowedModel: a draft model that sees only the end of a long text."""

from collections.abc import Sequence

from localspec.decoding.model import LanguageModel, Logits


class WindowedModel:
    """A `LanguageModel` over texts of any length, of which the model within sees the latest part.

    What a draft model has not followed costs a pass per chunk before it can propose anything, and
    a long text makes each of its passes slower. So it starts a window of `fresh` tokens where it
    would have to evaluate more than that, and when the model's context is full.

    Its logits after a text depend on where the window began, and so on the requests before:
    good for proposing, never for a target.

    Args:
        model: sees the window.
        n_ctx: most tokens of a whole text.
        fresh: tokens that a new window starts with, fewer than the model's context.
    """

    def __init__(self, model: LanguageModel, n_ctx: int, fresh: int) -> None:
        self._model = model
        self._fresh = min(fresh, model.n_ctx // 2)
        self._start = 0
        self._skipped: list[int] = []
        self.n_ctx = n_ctx
        self.n_vocab = model.n_vocab

    def common_prefix(self, tokens: Sequence[int]) -> int:
        """Return how many of `tokens` need no evaluation, those before the window included."""
        start = self._window(tokens)
        if start == self._start:
            return start + self._model.common_prefix(tokens[start:])
        return start

    def prefill(self, tokens: Sequence[int]) -> int:
        """Evaluate what of `tokens` lies in the window; see `LanguageModel`."""
        return self._model.prefill(self._visible(tokens))

    def logits(self, tokens: Sequence[int], rows: int) -> Logits:
        """Return the logits after the last `rows` tokens of the window; see `LanguageModel`."""
        return self._model.logits(self._visible(tokens), rows)

    def truncate(self, n_past: int) -> None:
        """Forget everything beyond the first `n_past` tokens; see `LanguageModel`."""
        self._model.truncate(max(0, n_past - self._start))
        if n_past < self._start:
            self._begin([])

    def _visible(self, tokens: Sequence[int]) -> Sequence[int]:
        start = self._window(tokens)
        if start != self._start:
            self._begin(tokens[:start])
        return tokens[start:]

    def _begin(self, skipped: Sequence[int]) -> None:
        self._start = len(skipped)
        self._skipped = list(skipped)

    def _window(self, tokens: Sequence[int]) -> int:
        """Return where the window of `tokens` begins: where it did, if little is missing there."""
        start = self._start
        known = start + self._model.common_prefix(tokens[start:])
        # One token beyond it is left to every pass, and the whole context to none.
        follows = list(tokens[:start]) == self._skipped and len(tokens) - known <= self._fresh
        if follows and len(tokens) - start <= self._model.n_ctx:
            return start
        return max(0, len(tokens) - self._fresh)
