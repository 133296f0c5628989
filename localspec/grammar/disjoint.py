"""Disjoint: whether what a grammar writes for one schema can be valid under another; `oneOf` allows one alone.

Says yes only where it is certain. Sees through references and alternatives to the properties: a discriminator is enough.
"""

from localspec.grammar.document import Document
from localspec.grammar.facts import Facts, Subschema, common_types, facts
from localspec.grammar.keywords import same_value, type_of

_MAX_DEPTH = 12
_MOST_PAIRS = 2_000


class Disjoint:
    """Proves that schemas of a document have no instance in common.

    Args:
        document: in which their references lead somewhere.
    """

    def __init__(self, document: Document) -> None:
        self._document = document
        self._pairs = 0

    def never_valid(
        self, written: list[Subschema], under: list[Subschema], *, closed: bool
    ) -> bool:
        """Say whether nothing that is written for all of `written` is valid under all of `under`.

        Args:
            written: as a grammar writes it.
            under: as the standard reads it.
            closed: whether of an object whose schema does not say what other properties there may be none are written.
        """
        self._pairs = 0
        return self._apart(written, under, closed, frozenset(), 0)

    def _apart(
        self,
        written: list[Subschema],
        under: list[Subschema],
        closed: bool,
        chosen: frozenset[str],
        depth: int,
    ) -> bool:
        """See `never_valid`; of the alternatives at the places in `chosen`, one was put among the schemas."""
        self._pairs += 1
        if depth > _MAX_DEPTH or self._pairs > _MOST_PAIRS:
            return False
        mine, theirs = (facts(self._document, each, chosen) for each in (written, under))
        says_itself = mine.spoken or mine.types is not None or mine.values is not None
        only_lists = len(mine.choices) == 1 and not says_itself
        if closed:
            mine.close()
        if mine.values is not None:
            return all(self._refuses(theirs, value, depth) for value in mine.values)
        if theirs.values is not None:
            return all(self._refuses(mine, value, depth) for value in theirs.values)
        if _types_apart(mine, theirs) or self._objects_apart(mine, theirs, closed, depth):
            return True
        return any(
            all(
                self._apart(
                    [*written, each], under, closed and only_lists, chosen | {place}, depth + 1
                )
                for each in some
            )
            for place, some in mine.choices.items()
        ) or any(
            all(
                self._apart(written, [*under, each], closed, chosen | {place}, depth + 1)
                for each in some
            )
            for place, some in theirs.choices.items()
        )

    def _objects_apart(self, mine: Facts, theirs: Facts, closed: bool, depth: int) -> bool:
        if mine.types != {"object"}:
            return False
        if any(theirs.required.keys() - names for names in mine.closed):
            return True
        if any(mine.required.keys() - names for names in theirs.closed):
            return True
        return any(
            self._apart(
                mine.properties[name],
                theirs.properties[name],
                closed and len(mine.properties[name]) == 1,
                frozenset(),
                depth + 1,
            )
            for name in mine.required | theirs.required
            if name in mine.properties and name in theirs.properties
        )

    def _refuses(self, known: Facts, value: object, depth: int) -> bool:
        """Say whether a value is certainly not valid."""
        if depth > _MAX_DEPTH:
            return False

        def refused(parts: list[Subschema], inner: object) -> bool:
            return self._refuses(facts(self._document, parts), inner, depth + 1)

        found = known.values is not None and not any(same_value(value, v) for v in known.values)
        found |= known.types is not None and not common_types({type_of(value)}, known.types)
        if type_of(value) in {"integer", "number"}:
            found |= not known.low <= value <= known.high  # type: ignore[operator]
        if isinstance(value, dict):
            found |= bool(known.required.keys() - value.keys())
            found |= any(value.keys() - names for names in known.closed)
            found |= any(
                refused(known.properties[name], value[name])
                for name in known.properties.keys() & value.keys()
            )
        return found or any(
            all(refused([each], value) for each in some) for some in known.choices.values()
        )


def _types_apart(mine: Facts, theirs: Facts) -> bool:
    if mine.types is None or theirs.types is None:
        return False
    common = common_types(mine.types, theirs.types)
    numbers = common <= {"number", "integer"}
    return not common or (numbers and (mine.low > theirs.high or theirs.low > mine.high))
