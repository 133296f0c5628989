"""Budget: bounds what drafting may lose, whatever the text does."""

from collections import deque


class Budget:
    """Time that drafting may still lose against plain decoding, in plain steps.

    Rounds that gain refill it and rounds that lose draw on it. A round is allowed only while the
    budget covers its worst outcome; so over no `window` tokens, wherever they begin, does drafting
    lose more than `limit` steps, as far as costs are foreseen, and what was lost is forgiven when so many tokens have gone by.

    Args:
        limit: most steps that may be lost.
        window: tokens over which that holds.
    """

    def __init__(self, limit: float, window: int) -> None:
        self._limit = limit
        self._window = window
        self._tokens = 0
        self._gained = 0.0
        # What had been gained at each token of the window, as far as no later one had gained more.
        self._peaks = deque([(0, 0.0)])

    @property
    def steps(self) -> float:
        """Steps that may be lost from here on."""
        return self._limit - (self._peaks[0][1] - self._gained)

    def settle(self, confirmed: int, cost_steps: float) -> None:
        """Count a round.

        Args:
            confirmed: tokens that it confirmed, each worth a plain step.
            cost_steps: what it took, in plain steps.
        """
        self._tokens += confirmed
        self._gained += confirmed - cost_steps
        while self._peaks and self._peaks[-1][1] <= self._gained:
            self._peaks.pop()
        self._peaks.append((self._tokens, self._gained))
        while self._peaks[0][0] < self._tokens - self._window:
            self._peaks.popleft()
