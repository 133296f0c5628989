"""References: what `$ref` points to within a schema, and schemas without any."""

from typing import Any
from urllib.parse import unquote

from localspec.structured.keywords import ASSERTIONS, Schema, require_known
from localspec.structured.merging import merged
from localspec.structured.schema_error import member, schema_error

_MAX_STEPS = 100


class References:
    """Looks up what a document's references mean.

    Args:
        document: the whole schema.
    """

    def __init__(self, document: object) -> None:
        self._document = document

    def target(self, pointer: object, path: str) -> Any:
        """Return what a `$ref` points to.

        Raises:
            UsageError: it points elsewhere, or nowhere.
        """
        if not isinstance(pointer, str) or not pointer.startswith("#"):
            raise schema_error(
                path, f"$ref {str(pointer)[:80]!r} points out of the schema: put it under $defs"
            )
        found: Any = self._document
        for part in unquote(pointer[1:]).split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            elif isinstance(found, dict) and name in found:
                found = found[name]
            else:
                raise schema_error(path, f"$ref {pointer!r} points to nothing")
        if pointer[1:] and not pointer.startswith("#/"):
            raise schema_error(
                path, f"$ref {pointer[:80]!r} is no pointer: write it as #/$defs/name"
            )
        return found

    def flat(self, schema: object, path: str = "") -> Schema:
        """Return a schema that says the same without `$ref` and `allOf`, and of which `anyOf` or `oneOf` stands alone.

        What lies deeper, in properties and items, is left as it is.
        """
        return self._flat(schema, path, 0)

    def _flat(self, schema: object, path: str, steps: int) -> Schema:
        if steps > _MAX_STEPS:
            raise schema_error(path, "it refers to itself, with nothing in between")
        found = require_known(schema, path)
        if "$ref" in found:
            neighbours = {key: value for key, value in found.items() if key != "$ref"}
            target = self._flat(self.target(found["$ref"], path), path, steps + 1)
            found = merged(target, neighbours, path) if said(neighbours) else target
        if "allOf" in found:
            parts = listed(found, "allOf", path)
            found = {key: value for key, value in found.items() if key != "allOf"}
            for index, part in enumerate(parts):
                each = self._flat(part, member(member(path, "allOf"), index), steps + 1)
                found = merged(found, each, path)
        if "$ref" in found or "allOf" in found:
            return self._flat(found, path, steps + 1)
        return self._distributed(found, path, steps)

    def _distributed(self, schema: Schema, path: str, steps: int) -> Schema:
        """Return alternatives that say themselves what stands beside them."""
        unions = [keyword for keyword in ("anyOf", "oneOf") if keyword in schema]
        if len(unions) > 1:
            raise schema_error(path, "anyOf beside oneOf: leave one of them out")
        if not unions:
            return _evaluated(schema)
        keyword = unions[0]
        base = {key: value for key, value in schema.items() if key != keyword}
        parts = listed(schema, keyword, path)
        if not said(base):
            return {keyword: parts}
        found = []
        for index, part in enumerate(parts):
            each = self._flat(part, member(member(path, keyword), index), steps + 1)
            found.append({"allOf": [base, each]} if _union(each) else merged(base, each, path))
        return {keyword: found}


def _evaluated(schema: Schema) -> Schema:
    """Return a schema that says itself what is left for `unevaluatedProperties` and `unevaluatedItems`.

    All that stands beside them, in `allOf` or behind `$ref`, is part of it by now. What stands around it is not, and does
    not count for them.
    """
    found = dict(schema)
    if isinstance(found.get("unevaluatedProperties"), bool) and not found.pop(
        "unevaluatedProperties"
    ):
        found.setdefault("additionalProperties", False)
    if "unevaluatedItems" in found:
        found.setdefault("items", found.pop("unevaluatedItems"))
    return found


def said(schema: Schema) -> bool:
    """Say whether a schema asserts anything."""
    return bool(schema.keys() & ASSERTIONS)


def listed(schema: Schema, keyword: str, path: str) -> list[Any]:
    """Return a keyword that takes a list of schemas."""
    value = schema[keyword]
    if not isinstance(value, list) or not value:
        raise schema_error(path, f"{keyword} takes a list of schemas")
    return value


def _union(schema: Schema) -> bool:
    return "anyOf" in schema or "oneOf" in schema
