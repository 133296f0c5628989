"""What is recorded of replies on this machine, and the kinds of text in its statistics."""

from dataclasses import dataclass

from localspec.errors import UsageError

WORKLOADS = ("code", "edit", "chat", "summarise", "structured", "creative")
"""The kinds of text."""


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


def checked_workload(name: str) -> str:
    """Return a kind of text that a user named.

    Raises:
        UsageError: there is no such kind.
    """
    if name not in WORKLOADS:
        raise UsageError(f"workload {name!r}: choose one of {', '.join(WORKLOADS)}")
    return name
