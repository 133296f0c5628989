"""Fact: one thing that was found out, and whether it is as it should be."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from localspec.errors import LocalspecError

State = Literal["ok", "note", "warning", "broken"]


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that was found out.

    Args:
        section: what it belongs to.
        name: what it is about.
        value: what was found.
        state: `note` is worth knowing; with a `warning`, such as no network, something does not work; `broken` needs mending.
    """

    section: str
    name: str
    value: str
    state: State = "ok"


Gather = Callable[[], Iterator[Fact]]


def gathered(section: str, gather: Gather) -> list[Fact]:
    """Return a section's facts; what fails on the way is one, too."""
    facts: list[Fact] = []
    try:
        facts.extend(gather())
    except (LocalspecError, OSError) as error:
        facts.append(Fact(section, "failed", " ".join(str(error).split()), "broken"))
    return facts
