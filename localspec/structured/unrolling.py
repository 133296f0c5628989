"""Unrolling: a grammar whose rules contain themselves becomes one whose texts nest only so deep.

A model that nests on and on never comes to the end of an answer. Every text of the new grammar is one of the old
one. Down to the last level nothing is missing; there, each rule has left what needs fewer rules below it than
itself, so there is always a way out, and none back up. Knows no JSON.
"""

from collections.abc import Callable, Iterator

from localspec.structured.endings import ends, heights
from localspec.structured.gbnf import read_gbnf
from localspec.structured.gbnf_rules import (
    Alternatives,
    Grammar,
    Group,
    Item,
    Reference,
    Sequence,
    Text,
    references,
)

LEVELS = 8
_MOST_RULES = 1_500
"""Of a grammar that was unrolled; llama.cpp looks at each a few times for every token, about a microsecond in all."""
_ROOT = "root"
_NOTHING = '""'
_Naming = Callable[[str], str | None]
"""The new name of a rule that is referred to; None where it is left out."""


def unrolled(gbnf: str, levels: int = LEVELS) -> str:
    """Return a grammar of the texts of `gbnf` whose rules lie within themselves at most `levels` deep.

    Fewer where so many would make too large a grammar; at least 2. One without such rules is returned as it is,
    and so is one that never ends.

    Args:
        gbnf: a grammar that can be read, and has all the rules that it refers to.
        levels: a rule within which it does not lie again is on the first.
    """
    grammar = read_gbnf(gbnf)
    height = heights(grammar, ends)
    back = _ways_back(grammar)
    if not back or _ROOT not in height:
        return gbnf
    nesting = _leading_to(grammar, {name for name, _ in back})
    room = 1 + (_MOST_RULES - len(grammar)) // len(nesting)
    return _Unrolling(grammar, height, back, nesting, min(levels, max(2, room))).gbnf()


class _Unrolling:
    """Writes every rule once for each level on which it is needed.

    Args:
        grammar: the rules.
        height: of the rules that end.
        back: which rule refers to which that it lies within.
        nesting: rules that lie within themselves, or contain such.
        levels: how many there are.
    """

    def __init__(
        self,
        grammar: Grammar,
        height: dict[str, int],
        back: set[tuple[str, str]],
        nesting: set[str],
        levels: int,
    ) -> None:
        self._grammar = grammar
        self._height = height
        self._back = back
        self._nesting = nesting
        self._levels = levels

    def gbnf(self) -> str:
        found: dict[tuple[str, int], str] = {}
        todo = [(_ROOT, 1)]
        while todo:
            name, level = todo.pop()
            if (name, level) in found:
                continue
            wanted: list[tuple[str, int]] = []
            body = _alternatives(
                self._grammar[name].alternatives, self._naming(name, level, wanted)
            )
            assert body is not None, f"{name} has no end on level {level}"  # noqa: S101
            found[name, level] = f"{_named(name, level)} ::= {body}\n"
            todo += reversed(wanted)
        return "".join(found.values())

    def _naming(self, name: str, level: int, wanted: list[tuple[str, int]]) -> _Naming:
        """Return what a rule on a level calls others, which are then wanted."""

        def naming(other: str) -> str | None:
            below = self._level(name, level, other)
            if below is None:
                return None
            wanted.append((other, below))
            return _named(other, below)

        return naming

    def _level(self, name: str, level: int, other: str) -> int | None:
        """Return the level of what a rule refers to."""
        if other not in self._height:
            return None
        if other not in self._nesting:
            return 1
        if level < self._levels:
            return level + ((name, other) in self._back)
        return level if self._height[other] < self._height[name] else None


def _named(name: str, level: int) -> str:
    return name if level == 1 else f"{name}-{level}"


def _ways_back(grammar: Grammar) -> set[tuple[str, str]]:
    """Return which rule refers to which that it lies within; without these ways, none would lie within itself."""
    back: set[tuple[str, str]] = set()
    seen = {_ROOT}
    within: dict[str, Iterator[Reference]] = {_ROOT: references(grammar[_ROOT].alternatives)}
    while within:
        name, left = next(reversed(within.items()))
        other = next(left, None)
        if other is None:
            del within[name]
        elif other.name in within:
            back.add((name, other.name))
        elif other.name not in seen:
            seen.add(other.name)
            within[other.name] = references(grammar[other.name].alternatives)
    return back


def _leading_to(grammar: Grammar, names: set[str]) -> set[str]:
    """Return these rules and all that refer to them, directly or by others."""
    referring: dict[str, set[str]] = {}
    for name, rule in grammar.items():
        for reference in references(rule.alternatives):
            referring.setdefault(reference.name, set()).add(name)
    found, todo = set(names), list(names)
    while todo:
        new = referring.get(todo.pop(), set()) - found
        found |= new
        todo += new
    return found


def _alternatives(alternatives: Alternatives, naming: _Naming) -> str | None:
    """Return what is left of alternatives, as a grammar writes it; None where nothing is."""
    written = [_sequence(each, naming) for each in alternatives]
    left = dict.fromkeys(each for each in written if each is not None)
    return " | ".join(left) if left else None


def _sequence(sequence: Sequence, naming: _Naming) -> str | None:
    written = [_item(each, naming) for each in sequence]
    if None in written:
        return None
    return " ".join(each for each in written if each and each != _NOTHING) or _NOTHING


def _item(item: Item, naming: _Naming) -> str | None:
    if isinstance(item, Text):
        return item.source
    if isinstance(item, Reference):
        return naming(item.name)
    if isinstance(item, Group):
        inner = _alternatives(item.alternatives, naming)
        return None if inner is None else f"({inner})"
    inner = _item(item.item, naming)
    if inner is None:
        return _NOTHING if item.least == 0 else None
    most = "" if item.most is None else item.most
    return f"{inner}{{{item.least},{most}}}"
