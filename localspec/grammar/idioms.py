"""Idioms of the generators of schemas: keywords that say nothing, and some that are written for something simpler."""

from collections.abc import Mapping
from typing import Any

from localspec.grammar.document import KEYWORDS, REFUSED, part_at

_EMPTY = ("dependencies", "dependentRequired", "dependentSchemas", "patternProperties")
_OPEN = ("unevaluatedProperties", "unevaluatedItems")
_MOST_REFERENCES = 20


def plain_part(whole: Any, schema: Any, path: str) -> Any:
    """Return a part of a schema without its idioms.

    Args:
        whole: the schema, for what the part refers to.
        schema: the part; what is none comes back as it is.
        path: JSON pointer to it.
    """
    if not isinstance(schema, dict):
        return schema
    # Some languages write null for a list or an object that is not there.
    part = {
        name: value
        for name, value in schema.items()
        if not (value is None and name != "const" and (name in KEYWORDS or name in REFUSED))
        and not (name in _EMPTY and value == {})
        and not (name in _OPEN and value in (True, {}))
    }
    never = part.get("not")
    if never is True or never == {}:
        return False  # zod's undefined, typebox's never
    if never is False:
        del part["not"]
    _exclusive(part)
    if isinstance(part.get("required"), bool):  # of draft 3, beside each property
        del part["required"]
    if "propertyNames" in part:
        _names(part, _referred(whole, part["propertyNames"], path))
    return part


def _exclusive(part: dict[str, Any]) -> None:
    """Write the limits of draft 4, and of OpenAPI 3.0, as those of today."""
    for name, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if part.get(name) is True and limit in part:
            part[name] = part.pop(limit)
        elif isinstance(part.get(name), bool):
            del part[name]


def _referred(whole: Any, schema: Any, path: str) -> Any:
    for _ in range(_MOST_REFERENCES):
        if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
            break
        schema = part_at(whole, schema["$ref"], path)
    return plain_part(whole, schema, path)


def _names(part: dict[str, Any], names: Any) -> None:
    """Write what names may be as the properties that they name, or as a pattern of them; leave what is neither."""
    said = dict(names) if isinstance(names, Mapping) else {}
    said = {name: value for name, value in said.items() if name in KEYWORDS or name in REFUSED}
    kinds = said.pop("type", "string")
    if names is False or "string" not in ([kinds] if isinstance(kinds, str) else kinds):
        return
    others = part.get("additionalProperties", True)
    listed = _listed(said)
    if not said:
        del part["propertyNames"]
    elif "patternProperties" in part:
        return
    elif listed is not None:
        own = part.get("properties", {})
        texts = [each for each in listed if isinstance(each, str)]
        part["properties"] = {each: own.get(each, others) for each in texts}
    elif not part.get("properties") and (pattern := _pattern(said)):
        part["patternProperties"] = {pattern: others}
    else:
        return
    if said:
        del part["propertyNames"]
        part["additionalProperties"] = False


def _listed(said: Mapping[str, Any]) -> list[Any] | None:
    """Return the values that a schema lists, itself or by constants to choose from; None where it says something else."""
    match {name: value for name, value in said.items() if name in KEYWORDS or name in REFUSED}:
        case {"enum": list(values), **rest} if not rest.keys() - {"type"}:
            return values
        case {"const": value, **rest} if not rest.keys() - {"type"}:
            return [value]
        case {"anyOf": list(parts), **rest} | {"oneOf": list(parts), **rest} if not rest:
            some = [_listed(each) if isinstance(each, Mapping) else None for each in parts]
            values = [value for each in some for value in each or ()]
            is_one = "anyOf" in said or all(values.count(each) == 1 for each in values)
            return values if is_one and None not in some else None
    return None


def _pattern(said: Mapping[str, Any]) -> str:
    """Return the pattern of names, or one of their lengths; none where they are bound in other ways."""
    if said.keys() == {"pattern"}:
        return str(said["pattern"])
    least, most = said.get("minLength", 0), said.get("maxLength", "")
    whole = all(isinstance(each, int) for each in (least, most or 0))
    is_length = whole and said.keys() <= {"minLength", "maxLength"}
    return f"^[\\s\\S]{{{least},{most}}}$" if is_length else ""
