"""Document: a JSON schema, all of which a mask can enforce, and whose parts are known by JSON pointers."""

import json
from collections.abc import Collection, Iterable, Iterator
from typing import Any
from urllib.parse import unquote

from localspec.display import printable
from localspec.errors import UsageError

BY_TYPE = {
    "object": ("properties", "patternProperties", "additionalProperties", "required", "minProperties", "maxProperties"),
    "array": ("items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}  # fmt: skip
"""Keywords that constrain one type of value alone."""
NAMED = ("properties", "patternProperties", "dependencies", "dependentRequired", "dependentSchemas")
JOINS = ("$ref", "allOf", "anyOf", "oneOf")
_SCHEMAS = ("items", "additionalItems", "additionalProperties")
_REFUSED = (
    *("not", "if", "propertyNames", "contains", "$dynamicRef", "$recursiveRef"),
    *("unevaluatedProperties", "unevaluatedItems"),
)
KEYWORDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys((each for some in BY_TYPE.values() for each in some), (int, float)),
    **dict.fromkeys(NAMED, (dict,)),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems", "required", "enum"), (list,)),
    **dict.fromkeys(("$ref", "pattern", "format"), (str,)),
    **dict.fromkeys(_SCHEMAS, (dict, bool, list)),
    "type": (str, list),
    "const": (object,),
}
"""Keywords that are enforced, with the types of their values; others are refused, or say nothing."""
_LONGEST = 300


def schema_error(path: str, what: str) -> UsageError:
    """Return the error about a place in a schema, on one line.

    Args:
        path: JSON pointer to it, "" for the whole.
        what: is wrong there, and what to do.
    """
    where, why = (
        text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
        for text in (path or "its root", " ".join(what.split()))
    )
    # A schema may come from anywhere, and a terminal obeys some characters.
    return UsageError(printable(f"the JSON schema cannot be enforced at {where}: {why}"))


def member(path: str, *names: str | int) -> str:
    """Return the pointer to what lies within what `path` points to."""
    escaped = (str(name).replace("~", "~0").replace("/", "~1") for name in names)
    return "/".join((path, *escaped))


def types_of(keywords: Collection[str]) -> list[str]:
    """Return the types that keywords constrain."""
    return [kind for kind, some in BY_TYPE.items() if any(each in keywords for each in some)]


class Document:
    """A JSON schema.

    Args:
        schema: as `json.loads` gives it.

    Raises:
        UsageError: a part that can be reached is no schema, or has what a mask cannot enforce, or a wrong value.
    """

    def __init__(self, schema: object) -> None:
        self._schema = schema
        todo = [""]
        for pointer in todo:
            for reference, path in self._references(self.at(pointer), pointer):
                if (target := self._target(reference, path)) not in todo:
                    todo.append(target)

    def at(self, pointer: str) -> Any:
        """Return the part that a pointer leads to.

        Raises:
            LookupError: there is none.
        """
        value: Any = self._schema
        for part in pointer.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(value, dict) and not (isinstance(value, list) and name.isdecimal()):
                raise LookupError
            value = value[int(name)] if isinstance(value, list) else value[name]
        return value

    def parts(self, schema: Any) -> Iterator[dict[str, Any]]:
        """Yield a schema, what it refers to, and what it joins, alternatives as well."""
        todo, references = [schema], set[str]()
        for part in todo:
            if isinstance(part, dict):
                yield part
                todo += (
                    each for name in ("allOf", "anyOf", "oneOf") for each in part.get(name, ())
                )
                todo += (each for name in NAMED[2:] for each in part.get(name, {}).values())
                if "$ref" in part and part["$ref"] not in references:
                    references.add(part["$ref"])
                    todo.append(self.at(unquote(part["$ref"][1:])))

    def _references(self, schema: Any, path: str) -> Iterator[tuple[str, str]]:
        """Yield what a part refers to, with the place; raise where it cannot be enforced."""
        if isinstance(schema, bool):
            return
        _require_known(schema, path)
        if "$ref" in schema:
            yield schema["$ref"], path
        for keyword, value in schema.items():
            inner: Iterable[tuple[str | int, Any]] = ()
            if keyword in NAMED:
                inner = value.items()
            elif isinstance(value, list) and keyword in {*JOINS, *_SCHEMAS, "prefixItems"}:
                inner = enumerate(value)
            elif keyword in _SCHEMAS:
                yield from self._references(value, member(path, keyword))
            for name, each in inner:
                if keyword not in NAMED[2:] or not isinstance(each, list):
                    yield from self._references(each, member(path, keyword, name))

    def _target(self, reference: str, path: str) -> str:
        """Return the pointer to what a `$ref` leads to."""
        name = f"$ref {reference[:80]!r}"
        if reference != "#" and not reference.startswith("#/"):
            raise schema_error(path, f"{name} points out of the schema, or to a name: write it as #/$defs/name")  # fmt: skip
        try:
            self.at(unquote(reference[1:]))
        except LookupError:
            raise schema_error(path, f"{name} points to nothing") from None
        return unquote(reference[1:])


def _require_known(schema: Any, path: str) -> None:
    if not isinstance(schema, dict):
        raise schema_error(path, f"{str(schema)[:40]!r} is not a schema: write an object")
    if path and isinstance(schema.get("$id"), str) and '"$ref"' in json.dumps(schema):
        raise schema_error(path, "a $ref is inside a part with its own $id: remove that $id")
    for keyword, value in schema.items():
        if keyword in _REFUSED:
            raise schema_error(path, f"{keyword!r} is not supported: remove it")
        names = value if keyword in {"type", "required"} and isinstance(value, list) else ()
        if not isinstance(value, KEYWORDS.get(keyword, (object,))) or not all(
            isinstance(each, str) for each in names
        ):
            raise schema_error(path, f"{keyword} is {str(value)[:40]!r}: give it another value")
