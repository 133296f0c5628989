"""Endings: which rules of a grammar come to an end, which may be empty, and how soon."""

from collections.abc import Callable, Container

from localspec.structured.gbnf_rules import (
    Alternatives,
    Grammar,
    Group,
    Item,
    Reference,
    Text,
    references,
)

Holds = Callable[[Item, Container[str]], bool]
"""A property of an item, given the names of the rules that have it."""


def heights(grammar: Grammar, holds: Holds) -> dict[str, int]:
    """Return the rules of which an alternative holds in all its items, given those that hold.

    Each with its height: how many rules lie below it at least, one below the other, that it needs for that.
    """
    found: dict[str, int] = {}
    waiting: dict[str, set[str]] = {}
    for name, rule in grammar.items():
        for reference in references(rule.alternatives):
            waiting.setdefault(reference.name, set()).add(name)
    height, todo = 0, set(grammar)
    while todo:
        new = [
            name
            for name in todo
            if name not in found and holds_for_some(grammar[name].alternatives, found, holds)
        ]
        found.update(dict.fromkeys(new, height))
        todo = {other for name in new for other in waiting.get(name, ())}
        height += 1
    return found


def holds_for_some(alternatives: Alternatives, known: Container[str], holds: Holds) -> bool:
    """Say whether a property holds for all items of one of the alternatives."""
    return any(all(holds(item, known) for item in sequence) for sequence in alternatives)


def ends(item: Item, known: Container[str]) -> bool:
    """Say whether an item may come to an end, given the rules that do."""
    if isinstance(item, Reference):
        return item.name in known
    if isinstance(item, Group):
        return holds_for_some(item.alternatives, known, ends)
    return isinstance(item, Text) or item.least == 0 or ends(item.item, known)


def may_be_empty(item: Item, known: Container[str]) -> bool:
    """Say whether an item may be no text at all, given the rules that may."""
    if isinstance(item, Reference):
        return item.name in known
    if isinstance(item, Group):
        return holds_for_some(item.alternatives, known, may_be_empty)
    if isinstance(item, Text):
        return item.elements == 0
    return item.least == 0 or may_be_empty(item.item, known)
