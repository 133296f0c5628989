"""Texts of grammars: one by chance, or all of a small one."""

import re
from itertools import product
from random import Random

from localspec.structured.gbnf import read_gbnf
from localspec.structured.gbnf_rules import (
    Alternatives,
    Grammar,
    Group,
    Item,
    Reference,
    Sequence,
    Text,
)

_ESCAPE = re.compile(r'\\(?:x(..)|u(.{4})|U(.{8})|([tnr])|(["\\\[\]-]))|(.)', re.DOTALL)
_NAMED = {"t": "\t", "n": "\n", "r": "\r"}


def random_texts(gbnf: str, count: int) -> list[str]:
    """Return texts of a grammar, each alternative as likely as the others."""
    writer = _Writer(read_gbnf(gbnf), Random(count))
    return [writer.alternatives_of("root") for _ in range(count)]


def all_texts(gbnf: str) -> set[str]:
    """Return the texts of a grammar without classes, loops, and rules that lie within themselves."""
    grammar = read_gbnf(gbnf)

    def of_alternatives(alternatives: Alternatives) -> set[str]:
        return {text for sequence in alternatives for text in of_sequence(sequence)}

    def of_sequence(sequence: Sequence) -> set[str]:
        return {"".join(parts) for parts in product(*map(of_item, sequence))}

    def of_item(item: Item) -> set[str]:
        if isinstance(item, Text):
            return {"".join(map(chr, _codes(item.source[1:-1])))}
        if isinstance(item, Reference):
            return of_alternatives(grammar[item.name].alternatives)
        if isinstance(item, Group):
            return of_alternatives(item.alternatives)
        assert item.most is not None
        once, found = of_item(item.item), set[str]()
        for count in range(item.least, item.most + 1):
            found |= {"".join(parts) for parts in product(once, repeat=count)}
        return found

    return of_alternatives(grammar["root"].alternatives)


class _Writer:
    def __init__(self, grammar: Grammar, chance: Random) -> None:
        self._grammar = grammar
        self._chance = chance

    def alternatives_of(self, name: str) -> str:
        return self._one_of(self._grammar[name].alternatives)

    def _one_of(self, alternatives: Alternatives) -> str:
        return "".join(map(self._item, self._chance.choice(alternatives)))

    def _item(self, item: Item) -> str:
        if isinstance(item, Text):
            return self._text(item.source)
        if isinstance(item, Reference):
            return self.alternatives_of(item.name)
        if isinstance(item, Group):
            return self._one_of(item.alternatives)
        most = item.least + 3 if item.most is None else min(item.most, item.least + 3)
        return "".join(self._item(item.item) for _ in range(self._chance.randint(item.least, most)))

    def _text(self, source: str) -> str:
        if source[0] == '"':
            return "".join(map(chr, _codes(source[1:-1])))
        assert source[0] == "["
        assert source[1] != "^"
        low, high = self._chance.choice(_ranges(source[1:-1]))
        return chr(self._chance.randint(low, high))


def _ranges(inner: str) -> list[tuple[int, int]]:
    found, codes = list[tuple[int, int]](), _codes(inner, hyphen=-1)
    while codes:
        if len(codes) > 2 and codes[1] == -1:
            found.append((codes[0], codes[2]))
            codes = codes[3:]
        else:
            code = ord("-") if codes[0] == -1 else codes[0]
            found.append((code, code))
            codes = codes[1:]
    return found


def _codes(inner: str, hyphen: int = ord("-")) -> list[int]:
    """Return the characters of a literal or class; a hyphen without a backslash may stand for a range."""
    found = []
    for two, four, eight, named, itself, plain in _ESCAPE.findall(inner):
        if two or four or eight:
            found.append(int(two or four or eight, 16))
        elif plain == "-":
            found.append(hyphen)
        else:
            found.append(ord(_NAMED.get(named, "") or itself or plain))
    return found
