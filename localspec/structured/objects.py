"""Objects: properties in the order of the schema, optional ones or not, then others where they may be."""

from localspec.structured.keywords import Schema, count
from localspec.structured.rules import json_literal, quoted
from localspec.structured.schema_error import member, schema_error
from localspec.structured.strings import plain_keys
from localspec.structured.writer import Writer

_MAX_PROPERTIES = 1_000


def object_body(schema: Schema, path: str, writer: Writer) -> str:
    """Return what an object of a schema looks like.

    Raises:
        UsageError: a grammar cannot keep what is asked for.
    """
    properties, required = _properties(schema, path)
    others = _others(schema, path, writer, named=bool(properties))
    for name in required:
        if name not in properties:
            if others is None:
                raise schema_error(path, f"{name!r} is required, and allowed nowhere")
            properties[name] = schema.get("additionalProperties", True)
    if len(properties) > _MAX_PROPERTIES:
        raise schema_error(path, f"more than {_MAX_PROPERTIES} properties")
    pairs = [
        (_pair(name, value, path, writer), name in required)
        for name, value in properties.items()
        if value is not False or name in required
    ]
    most = _others_by_count(schema, path, pairs, has_others=others is not None)
    extra = None if others is None else _other_pair(list(properties), others, writer)
    least = 1 if (count(schema, "minProperties", path) or 0) > len(required) else 0
    if extra is None or most == 0:
        return _braces(_chain(pairs, "", "", writer), writer)
    comma = f'"," {writer.space} {extra}'
    rest = writer.rules.add(comma)
    later = writer.rules.times(rest, least, most)
    first = writer.rules.times(rest, 0, None if most is None else most - 1)
    alone = f"{extra} {first}" if least else f"({extra} {first})?"
    return _braces(_chain(pairs, later, alone, writer), writer)


def _properties(schema: Schema, path: str) -> tuple[dict[str, object], list[str]]:
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict):
        raise schema_error(path, "properties takes an object")
    if not isinstance(required, list) or not all(isinstance(each, str) for each in required):
        raise schema_error(path, "required takes a list of names")
    return dict(properties), list(dict.fromkeys(required))


def _others(schema: Schema, path: str, writer: Writer, *, named: bool) -> str | None:
    """Return the rule for the values of properties that are not named; None where there are to be none."""
    value = schema.get("additionalProperties")
    if "unevaluatedProperties" in schema:  # true and false say no more than additionalProperties
        raise schema_error(path, "unevaluatedProperties cannot be kept: use additionalProperties")
    if value is None:
        value = not named
    if value is False:
        return None
    return (
        writer.anything()
        if value is True
        else writer.rule(value, member(path, "additionalProperties"))
    )


def _others_by_count(
    schema: Schema, path: str, pairs: list[tuple[str, bool]], *, has_others: bool
) -> int | None:
    """Return how many properties that are not named there may be at most; None is without limit."""
    least, most = (count(schema, each, path) for each in ("minProperties", "maxProperties"))
    required = sum(always for _, always in pairs)
    # Of two properties by the same name one is lost, so only the first other one counts for sure.
    if least is not None and least > required + has_others:
        raise schema_error(
            path, f"minProperties {least} cannot be kept: require properties by name"
        )
    if least is not None and least > required and len(pairs) > required:
        raise schema_error(path, f"minProperties {least} beside optional properties cannot be kept")
    if most is None:
        return None
    if most < required or (most < len(pairs) and len(pairs) > required):
        raise schema_error(path, f"maxProperties {most} cannot be kept beside these properties")
    return most - len(pairs)


def _pair(name: str, value: object, path: str, writer: Writer) -> str:
    where = member(member(path, "properties"), name)
    rule = writer.rule(value, where)
    return writer.rules.add(f'{json_literal(name)} ":" {_blank(writer)} {rule}')


def _other_pair(taken: list[str], value: str, writer: Writer) -> str:
    key = writer.rules.add(plain_keys(taken, writer.rules))
    return writer.rules.add(f'{key} ":" {_blank(writer)} {value}')


def _blank(writer: Writer) -> str:
    return writer.rules.add('" "?')


def _chain(pairs: list[tuple[str, bool]], later: str, alone: str, writer: Writer) -> str:
    """Return the pairs in order, optional ones or not, and what may come behind them.

    Args:
        pairs: name of the rule of each, and whether it is required.
        later: what comes behind them where there was one.
        alone: what comes where there was none.
        writer: takes the rules.
    """
    rules = writer.rules
    behind, first = later, alone
    for pair, always in reversed(pairs):
        comma = f'"," {writer.space} {pair}'
        behind_name = rules.add(behind) if behind else ""
        taken = f"{comma} {behind_name}".strip()
        begun = f"{pair} {behind_name}".strip()
        first_name = rules.add(first) if first else ""
        behind = taken if always else f"{taken} | {behind_name}".rstrip(" |")
        if not always and not behind_name:
            behind = f"({taken})?"
        first = begun if always else f"{begun} | {first_name}"
        if not always and not first_name:
            first = f"({begun})?"
    return first


def _braces(inner: str, writer: Writer) -> str:
    space = writer.space
    if not inner:
        return quoted("{}")
    return f'"{{" {space} ({inner}) {space} "}}"'
