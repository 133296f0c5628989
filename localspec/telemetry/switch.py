"""Switch: what is recorded of replies."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Switch:
    """What the user wants recorded beside counts and times.

    Args:
        text: token ids and their bytes, too: what was said.
        megabytes: most that the records take.
        days: how long they are kept.
    """

    text: bool = False
    megabytes: int = 128
    days: int = 365
