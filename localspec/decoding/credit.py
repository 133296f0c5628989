"""Credit: bounds what drafting may lose, whatever the text does."""


class Credit:
    """Time that drafting may still lose against plain decoding, in plain steps.

    Rounds that gain refill it and rounds that lose draw on it, up to a ceiling, and every
    confirmed token adds a little. A round is allowed only while the credit covers its worst
    outcome; so over n tokens no text whatever can make drafting lose more than
    `ceiling + per_token * n` steps.

    Args:
        start: steps to begin with.
        ceiling: most steps that are kept.
        per_token: steps that every confirmed token adds.
    """

    def __init__(self, start: float, ceiling: float, per_token: float) -> None:
        self.steps = start
        self._ceiling = ceiling
        self._per_token = per_token

    def settle(self, confirmed: int, cost_steps: float) -> None:
        """Count a round.

        Args:
            confirmed: tokens that it confirmed, each worth a plain step.
            cost_steps: what it took, in plain steps.
        """
        gained = confirmed - cost_steps + self._per_token * confirmed
        self.steps = min(self._ceiling, self.steps + gained)
