"""A JSON schema's keywords, parts and references, of which a mask can keep all, or an error names the place."""

import json
from collections.abc import Collection
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
CHOICES = ("allOf", "anyOf", "oneOf")
REFUSED = (
    *("not", "if", "propertyNames", "contains", "$dynamicRef", "$recursiveRef"),
    *("unevaluatedProperties", "unevaluatedItems"),
    *("dependencies", "dependentRequired", "dependentSchemas"),
)
KEYWORDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys((each for some in BY_TYPE.values() for each in some), (int, float)),
    **dict.fromkeys(("properties", "patternProperties"), (dict,)),
    **dict.fromkeys((*CHOICES, "prefixItems", "required", "enum"), (list,)),
    **dict.fromkeys(("$ref", "pattern", "format"), (str,)),
    **dict.fromkeys(("items", "additionalItems", "additionalProperties"), (dict, bool, list)),
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


def part_at(schema: Any, reference: str, path: str) -> Any:
    """Return what a `$ref` at a place of a schema leads to.

    Raises:
        UsageError: it leads to nothing, or out of the schema.
    """
    name = f"$ref {reference[:80]!r}"
    if reference != "#" and not reference.startswith("#/"):
        raise schema_error(path, f"{name} points out of the schema, or to a name: write it as #/$defs/name")  # fmt: skip
    try:
        for part in unquote(reference).split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            schema = schema[int(key) if isinstance(schema, list) and key.isdecimal() else key]
    except (LookupError, TypeError):
        raise schema_error(path, f"{name} points to nothing") from None
    return schema


def require_known(schema: Any, path: str) -> None:
    """Raise where a part is no schema, or has a keyword that a mask cannot keep, or a wrong value of one."""
    if not isinstance(schema, dict):
        raise schema_error(path, f"{str(schema)[:40]!r} is not a schema: write an object")
    if path and isinstance(schema.get("$id"), str) and '"$ref"' in json.dumps(schema):
        raise schema_error(path, "a $ref is inside a part with its own $id: remove that $id")
    for keyword, value in schema.items():
        if keyword in REFUSED:
            raise schema_error(path, f"{keyword!r} is not supported: remove it")
        names = value if keyword in {"type", "required"} and isinstance(value, list) else ()
        if not isinstance(value, KEYWORDS.get(keyword, (object,))) or not all(
            isinstance(each, str) for each in names
        ):
            raise schema_error(path, f"{keyword} is {str(value)[:40]!r}: give it another value")
