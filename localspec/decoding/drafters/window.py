"""Window: the end of a long text that a draft model sees."""

from collections.abc import Sequence

from localspec.decoding.model import LanguageModel


class Window:
    """Which part of a text a draft model evaluates.

    What a draft model has not followed costs a pass per chunk before it can propose anything, and
    a long text makes each of its passes slower. So a window of `fresh` tokens is started where more
    than that would have to be evaluated, and when the model's context is full. Its logits depend on
    where the window began, and so on the requests before: good for proposing, never for a target.

    Args:
        model: evaluates; asked for nothing but its sizes and what it has cached.
        fresh: tokens that a new window starts with.
    """

    def __init__(self, model: LanguageModel, fresh: int) -> None:
        self._model = model
        self._fresh = min(fresh, model.n_ctx // 2)
        self._skipped: list[int] = []

    def lag(self, tokens: Sequence[int]) -> int:
        """Return how many of `tokens` the model would have to evaluate."""
        return self._begin(tokens)[1]

    def open(self, tokens: Sequence[int]) -> tuple[list[int], int]:
        """Return what the model is to see of `tokens`, and its lag; keep the window where that begins."""
        start, lag = self._begin(tokens)
        if start != len(self._skipped):
            self._skipped = list(tokens[:start])
        return list(tokens[start:] if start else tokens), lag

    def _begin(self, tokens: Sequence[int]) -> tuple[int, int]:
        """Return where the window begins, and what it lacks: where it did, if that is little."""
        start = len(self._skipped)
        lag = len(tokens) - start - self._model.common_prefix(tokens[start:] if start else tokens)
        room = len(tokens) - start <= self._model.n_ctx
        # One token beyond it is left to every pass, and the whole context to none.
        if room and lag <= self._fresh and list(tokens[:start]) == self._skipped:
            return start, lag
        anew = max(0, len(tokens) - self._fresh)
        return (anew, len(tokens) - anew) if anew != start else (start, lag)
