"""Soundness: a grammar that llama.cpp can work with, to the end, in bounded time and memory.

Its own check for left recursion misses rules that are empty by way of others, and takes exponential time;
unbounded work is not checked for at all.
"""

from collections.abc import Container, Iterator, Mapping

from localspec.errors import UsageError
from localspec.structured.endings import ends, heights, may_be_empty
from localspec.structured.gbnf import read_gbnf
from localspec.structured.gbnf_cursor import place
from localspec.structured.gbnf_rules import (
    Alternatives,
    Grammar,
    Group,
    Item,
    Reference,
    Repetition,
    Text,
    all_items,
    references,
)

ROOT = "root"
MAX_ELEMENTS = 200_000
_MAX_BEGINNINGS = 2_000
_MAX_CHAIN = 2_000


def require_sound(gbnf: str) -> str:
    """Return a grammar that may be handed to llama.cpp: `gbnf` as it is.

    Raises:
        UsageError: it is no GBNF, lacks a rule, is left-recursive, can never end, or asks for too much.
    """
    rules = read_gbnf(gbnf)
    if ROOT not in rules:
        raise UsageError(f"the grammar has no rule {ROOT}: name what the whole answer is `{ROOT}`")
    check = _Check(gbnf, rules)
    check.references()
    check.size()
    check.ends()
    check.repetitions()
    check.beginnings()
    return gbnf


class _Check:
    def __init__(self, gbnf: str, rules: Grammar) -> None:
        self._gbnf = gbnf
        self._rules = rules
        self._empty: Container[str] = ()

    def references(self) -> None:
        for rule in self._rules.values():
            for reference in references(rule.alternatives):
                if reference.name not in self._rules:
                    raise self._error(f"there is no rule {reference.name}", reference.at)

    def size(self) -> None:
        total = 0
        for rule in self._rules.values():
            total += _elements(rule.alternatives)
            if total > MAX_ELEMENTS:
                raise self._error(
                    f"repetitions make it longer than {MAX_ELEMENTS} elements; ask for less",
                    rule.at,
                )

    def ends(self) -> None:
        """Refuse rules that go on for ever, and learn which may be empty."""
        ending = heights(self._rules, ends)
        for name, rule in self._rules.items():
            if name not in ending:
                raise self._error(f"the rule {name} can never end", rule.at)
        self._empty = heights(self._rules, may_be_empty).keys()

    def repetitions(self) -> None:
        """Refuse to repeat what may be empty: as many readings of one text as there are repetitions."""
        for rule in self._rules.values():
            for item in all_items(rule.alternatives):
                if (
                    isinstance(item, Repetition)
                    and item.most not in {0, 1}
                    and may_be_empty(item.item, self._empty)
                ):
                    raise self._error("what is repeated may be empty", item.at)

    def beginnings(self) -> None:
        """Refuse left recursion, and more beginnings than can be followed side by side."""
        counted: dict[str, tuple[int, int]] = {}
        for start in self._rules:
            path: dict[str, Iterator[Reference]] = {}
            self._enter(start, path, counted)
            while path:
                name, leading = next(reversed(path.items()))
                reference = next((each for each in leading if each.name not in counted), None)
                if reference is None:
                    del path[name]
                    counted[name] = self._count(name, counted)
                elif reference.name in path:
                    raise self._error(
                        f"the rule {reference.name} begins with itself; put what comes first in front",
                        reference.at,
                    )
                else:
                    self._enter(reference.name, path, counted)

    def _enter(
        self, name: str, path: dict[str, Iterator[Reference]], counted: Mapping[str, object]
    ) -> None:
        if name not in counted:
            leading = self._leading(self._rules[name].alternatives)
            path[name] = (item for item in leading if isinstance(item, Reference))

    def _count(self, name: str, counted: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
        """Return how many ways a rule may begin, and how deep its rules begin within each other."""
        rule = self._rules[name]
        leading = [
            counted[item.name] if isinstance(item, Reference) else (1, 0)
            for item in self._leading(rule.alternatives)
        ]
        ways = sum(count for count, _ in leading)
        depth = 1 + max((below for _, below in leading), default=0)
        if ways > _MAX_BEGINNINGS or depth > _MAX_CHAIN:
            raise self._error(f"the rule {name} may begin in too many ways", rule.at)
        return ways, depth

    def _leading(self, alternatives: Alternatives) -> Iterator[Reference | Text]:
        """Yield the rules and texts that something may begin with."""
        for sequence in alternatives:
            for item in sequence:
                yield from self._leading_item(item)
                if not may_be_empty(item, self._empty):
                    break

    def _leading_item(self, item: Item) -> Iterator[Reference | Text]:
        if isinstance(item, Group):
            yield from self._leading(item.alternatives)
        elif isinstance(item, Repetition):
            yield from self._leading_item(item.item)
        else:
            yield item

    def _error(self, what: str, at: int) -> UsageError:
        return UsageError(f"the grammar is wrong in {place(self._gbnf, at)}: {what}")


def _elements(alternatives: Alternatives) -> int:
    """Return how many elements llama.cpp makes of something, as it writes repetitions out."""
    return sum(1 + sum(map(_item_elements, sequence)) for sequence in alternatives)


def _item_elements(item: Item) -> int:
    if isinstance(item, Text):
        return item.elements
    if isinstance(item, Reference):
        return 1
    if isinstance(item, Group):
        return 1 + _elements(item.alternatives)
    # A group is written once and referred to; a literal is written as often as it is repeated.
    inner = _item_elements(item.item)
    once = inner if isinstance(item.item, Text) else 1
    optional = 1 if item.most is None else item.most - item.least
    return (inner - once) + item.least * once + optional * (once + 3) + 1
