"""Disjoint: whether what a grammar writes for one schema can be valid under another; `oneOf` allows one alone.

Says yes only where it is certain. Sees through to the properties: a discriminator is enough.
"""

from collections.abc import Callable
from typing import Any

from localspec.structured.keywords import Schema, type_of, types_of
from localspec.structured.merging import same_value

_MAX_DEPTH = 6
Resolve = Callable[[Any], Schema]
"""Returns a schema without references."""


def never_valid(written: Schema, under: Schema, resolve: Resolve, depth: int = 0) -> bool:
    """Say whether nothing that is written for `written` is valid under `under`.

    Args:
        written: the grammar's own: of its properties it writes the required ones always, and others than its own
            only where `additionalProperties` says so.
        under: as the standard reads it.
        resolve: follows references.
        depth: of properties looked into so far.
    """
    if depth > _MAX_DEPTH:
        return False
    written, under = resolve(written), resolve(under)
    values = _values(written)
    if values is not None:
        return all(_refuses(under, value) for value in values)
    if "anyOf" in written or "oneOf" in written or "anyOf" in under or "oneOf" in under:
        return _of_alternatives(written, under, resolve, depth)
    types = set(types_of(written, ""))
    allowed = _strict_types(under)
    if allowed is not None:
        types = {
            each for each in types if each in allowed or (each == "integer" and "number" in allowed)
        }
        types |= (
            {"integer"} if "number" in types_of(written, "") and "integer" in allowed else set()
        )
    if not types:
        return True
    under_values = _values(under)
    if under_values is not None:
        return all(_type_in(type_of(value), types) is False for value in under_values)
    return types == {"object"} and _objects_differ(written, under, resolve, depth)


def _of_alternatives(written: Schema, under: Schema, resolve: Resolve, depth: int) -> bool:
    writes = written.get("anyOf") or written.get("oneOf") or [written]
    reads = under.get("anyOf") or under.get("oneOf") or [under]
    if len(writes) * len(reads) > 100:
        return False
    return all(
        never_valid(each, other, resolve, depth + 1)
        for each in ([written] if writes == [written] else writes)
        for other in ([under] if reads == [under] else reads)
    )


def _objects_differ(written: Schema, under: Schema, resolve: Resolve, depth: int) -> bool:
    mine, theirs = written.get("properties", {}), under.get("properties", {})
    always = [name for name in written.get("required", ()) if name in mine]
    closed = written.get("additionalProperties") in (None, False) and bool(mine)
    if closed and any(name not in mine for name in under.get("required", ())):
        return True
    if under.get("additionalProperties") is False and any(name not in theirs for name in always):
        return True
    return any(
        name in theirs and never_valid(mine[name], theirs[name], resolve, depth + 1)
        for name in always
    )


def _values(schema: Schema) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else None


def _strict_types(schema: Schema) -> tuple[str, ...] | None:
    """Return the types that a schema allows; None where it does not say: then all are."""
    return types_of(schema, "") if "type" in schema else None


def _refuses(schema: Schema, value: object) -> bool:
    values = _values(schema)
    if values is not None:
        return not any(same_value(value, each) for each in values)
    allowed = _strict_types(schema)
    return allowed is not None and not _type_in(type_of(value), set(allowed))


def _type_in(kind: str, types: set[str]) -> bool:
    return kind in types or (kind == "integer" and "number" in types)
