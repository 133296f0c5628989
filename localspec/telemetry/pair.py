"""Pair: what answers, as far as figures are concerned."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pair:
    """What answers.

    Args:
        target: its name.
        draft_model: likewise; empty without one.
        plain_s: seconds of a plain pass as it was calibrated; None where it was not.
    """

    target: str
    draft_model: str = ""
    plain_s: float | None = None

    @property
    def name(self) -> str:
        """As people read it."""
        return f"{self.target} + {self.draft_model}" if self.draft_model else self.target
