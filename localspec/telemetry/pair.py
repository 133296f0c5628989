"""Pair: what answers, as far as figures are concerned."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pair:
    """What answers.

    Args:
        target: its name.
        draft_model: likewise; empty without one.
        plain_s: seconds of a plain pass as it was calibrated; None where it was not.
        at_once: how many texts it makes at once; their passes are shared.
    """

    target: str
    draft_model: str = ""
    plain_s: float | None = None
    at_once: int = 1

    @property
    def name(self) -> str:
        """As people read it."""
        models = f"{self.target} + {self.draft_model}" if self.draft_model else self.target
        return models if self.at_once == 1 else f"{models}, {self.at_once} at a time"
