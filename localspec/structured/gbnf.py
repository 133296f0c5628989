"""GBNF: the text of a grammar becomes rules, or an error that says where it is wrong.

llama.cpp reads the same notation, but prints what it dislikes past everybody's stderr, loops on `{3,2}`,
takes `{0,5000}` for no limit at all, and overflows its stack on deep nesting. So nothing reaches it that
was not read here first. References to tokens (`<…>`) are left out: a grammar here speaks of text alone.

Source: llama.cpp, `grammars/README.md` and `src/llama-grammar.cpp`.
"""

from localspec.errors import UsageError
from localspec.structured.gbnf_cursor import MAX_REPETITIONS, GbnfCursor
from localspec.structured.gbnf_rules import (
    Alternatives,
    Group,
    Item,
    Reference,
    Repetition,
    Rule,
    Sequence,
    Text,
)

MAX_CHARS = 1 << 20
_MAX_DEPTH = 100
_MAX_STACKED = 5


def read_gbnf(text: str) -> dict[str, Rule]:
    """Return the rules of a grammar by name.

    Raises:
        UsageError: it is no GBNF, with line and column.
    """
    if len(text) > MAX_CHARS:
        raise UsageError(
            f"the grammar has {len(text)} characters, more than {MAX_CHARS}: shorten it"
        )
    return _Reader(GbnfCursor(text)).rules()


class _Reader:
    """Reads a grammar once."""

    def __init__(self, cursor: GbnfCursor) -> None:
        self._cursor = cursor
        # llama.cpp counts the symbols that it makes up, too, and refuses to repeat too many of them.
        self._named: set[str] = set()
        self._made_up = 0

    @property
    def _symbols(self) -> int:
        return len(self._named) + self._made_up

    def rules(self) -> dict[str, Rule]:
        cursor = self._cursor
        rules: dict[str, Rule] = {}
        cursor.skip(lines=True)
        while not cursor.ended:
            at = cursor.at
            name = self._name()
            if name is None:
                raise cursor.error("expected the name of a rule")
            if name in rules:
                raise cursor.error(f"the rule {name} is defined a second time", at)
            rules[name] = Rule(self._definition(), at)
        return rules

    def _definition(self) -> Alternatives:
        cursor = self._cursor
        cursor.skip(lines=False)
        if not cursor.take("::="):
            raise cursor.error("expected ::=")
        cursor.skip(lines=True)
        alternatives = self._alternatives(depth=0)
        if not cursor.ended and cursor.peek() not in "\r\n":
            raise cursor.error("expected the end of the line")
        cursor.skip(lines=True)
        return alternatives

    def _alternatives(self, depth: int) -> Alternatives:
        found = [self._sequence(depth)]
        while self._cursor.take("|"):
            self._cursor.skip(lines=True)
            found.append(self._sequence(depth))
        return tuple(found)

    def _sequence(self, depth: int) -> Sequence:
        cursor = self._cursor
        items: list[Item] = []
        weight, stacked = 1, 0
        while True:
            character, at, symbols = cursor.peek(), cursor.at, self._symbols
            if character and character in "*+?{":
                if not items or _is_empty(items[-1]):
                    raise cursor.error(f"nothing stands before {character} to be repeated")
                least, most = cursor.counts()
                weight, stacked = weight * max(1, most or least), stacked + 1
                if stacked > _MAX_STACKED:
                    raise cursor.error("a repetition of a repetition of a repetition", at)
                if weight > MAX_REPETITIONS:
                    raise cursor.error(
                        f"repetitions within each other make more than {MAX_REPETITIONS}; give what is "
                        "repeated a rule of its own",
                        at,
                    )
                self._made_up += 1 if most is None else most - least
                items[-1] = Repetition(items[-1], least, most, at)
            elif (item := self._item(character, depth)) is not None:
                items.append(item)
                weight = max(1, self._symbols - symbols) if isinstance(item, Group) else 1
                stacked = 0
            else:
                return tuple(items)
            cursor.skip(lines=depth > 0)

    def _item(self, character: str, depth: int) -> Item | None:
        if character == "(":
            return self._group(depth + 1)
        if character and character in "<!":
            raise self._cursor.error(
                "references to tokens are not taken: write the text that is meant in quotes"
            )
        at = self._cursor.at
        name = self._name()
        return self._cursor.text() if name is None else Reference(name, at)

    def _group(self, depth: int) -> Group:
        cursor = self._cursor
        if depth > _MAX_DEPTH:
            raise cursor.error(f"more than {_MAX_DEPTH} parentheses within each other")
        cursor.at += 1
        self._made_up += 1
        cursor.skip(lines=True)
        group = Group(self._alternatives(depth))
        if not cursor.take(")"):
            raise cursor.error("expected )")
        return group

    def _name(self) -> str | None:
        name = self._cursor.name()
        if name is not None:
            self._named.add(name)
        return name


def _is_empty(item: Item) -> bool:
    return isinstance(item, Text) and item.elements == 0
