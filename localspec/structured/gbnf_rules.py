"""What a grammar in GBNF says, once it was read: rules, and what they are made of."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Text:
    """Characters that are written as they are, or one out of a class.

    Args:
        elements: how many llama.cpp keeps for it; 0 for an empty literal.
        source: how the grammar writes it, quotes or brackets included.
    """

    elements: int
    source: str


@dataclass(frozen=True, slots=True)
class Reference:
    """The name of a rule, and where it stands in the text."""

    name: str
    at: int


@dataclass(frozen=True, slots=True)
class Group:
    """Alternatives in parentheses."""

    alternatives: "Alternatives"


@dataclass(frozen=True, slots=True)
class Repetition:
    """An item, at least and at most so many times; None is without limit. `at` is where it says so."""

    item: "Item"
    least: int
    most: int | None
    at: int


Item = Text | Reference | Group | Repetition
Sequence = tuple[Item, ...]
Alternatives = tuple[Sequence, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """What a name stands for, and where it is defined."""

    alternatives: Alternatives
    at: int


Grammar = Mapping[str, Rule]
"""Rules by name."""


def all_items(alternatives: Alternatives) -> Iterator[Item]:
    """Yield the items of all alternatives, and behind each those within it."""
    for sequence in alternatives:
        for item in sequence:
            yield from _within(item)


def references(alternatives: Alternatives) -> Iterator[Reference]:
    """Yield the rules that alternatives refer to, in their order."""
    return (item for item in all_items(alternatives) if isinstance(item, Reference))


def _within(item: Item) -> Iterator[Item]:
    yield item
    if isinstance(item, Group):
        yield from all_items(item.alternatives)
    elif isinstance(item, Repetition):
        yield from _within(item.item)
