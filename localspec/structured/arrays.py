"""Arrays: items of one kind, or the first ones each of its own; all different where they are few and known."""

from localspec.structured.keywords import Schema, count
from localspec.structured.rules import json_literal
from localspec.structured.schema_error import member, schema_error
from localspec.structured.writer import Writer

_MAX_DIFFERENT = 100


def array_body(schema: Schema, path: str, writer: Writer) -> str:
    """Return what an array of a schema looks like.

    Raises:
        UsageError: a grammar cannot keep what is asked for.
    """
    least = count(schema, "minItems", path) or 0
    most = count(schema, "maxItems", path)
    if most is not None and least > most:
        raise schema_error(path, f"minItems {least} and maxItems {most} leave no array")
    firsts, items = item_schemas(schema, path)
    if items is False:
        most = len(firsts) if most is None else min(most, len(firsts))
        if least > most:
            raise schema_error(path, f"minItems is {least}, and there are {most} items to be had")
    if schema.get("uniqueItems") is True and most not in {0, 1}:
        return _different(schema, least, most, path, writer)
    if most == 0:
        return '"[]"'
    return _brackets(_in_order(firsts, items, least, most, path, writer), writer, empty=least == 0)


def item_schemas(schema: Schema, path: str) -> tuple[list[object], object]:
    """Return the schemas of the first items, and that of all others.

    Raises:
        UsageError: the first ones are no list.
    """
    items = schema.get("items", True)
    firsts = schema.get("prefixItems", [])
    if isinstance(items, list):  # as older drafts have it
        firsts, items = items, schema.get("additionalItems", True)
    if not isinstance(firsts, list):
        raise schema_error(path, "prefixItems takes a list of schemas")
    for index, each in enumerate(firsts):
        if each is False:  # there is no such item, nor one behind it
            return firsts[:index], False
    return firsts, items


def _in_order(
    firsts: list[object], items: object, least: int, most: int | None, path: str, writer: Writer
) -> str:
    """Return one item at least, and those behind it, with commas."""
    rules = writer.rules
    wanted = firsts if most is None else firsts[:most]
    names = [
        writer.rule(each, member(member(path, "prefixItems"), index))
        for index, each in enumerate(wanted)
    ]
    rest = ""
    if items is not False and (most is None or most > len(names)):
        other = writer.anything() if items is True else writer.rule(items, member(path, "items"))
        if not names:
            names = [other]
        comma = rules.add(f'"," {writer.space} {other}')
        left = None if most is None else most - len(names)
        rest = rules.times(comma, max(0, least - len(names)), left)
    # From the last to the first: what is beyond the fewest is optional, with all behind it.
    for index in range(len(names) - 1, 0, -1):
        name = f'"," {writer.space} {names[index]} {rest}'.strip()
        rest = name if index < least else f"({name})?"
        rest = rules.add(rest)
    return f"{names[0]} {rest}".strip()


def _different(schema: Schema, least: int, most: int | None, path: str, writer: Writer) -> str:
    """Return an array of different values out of a few, in their order."""
    items = schema.get("items")
    values = items.get("enum") if isinstance(items, dict) else None
    if not isinstance(values, list) or "prefixItems" in schema or len(values) > _MAX_DIFFERENT:
        raise schema_error(
            path,
            f"uniqueItems cannot be kept but for items out of an enum of up to {_MAX_DIFFERENT} values: leave it out",
        )
    literals = list(dict.fromkeys(json_literal(each) for each in values))
    if least > len(literals):
        raise schema_error(
            path, f"minItems is {least}, and there are {len(literals)} different items to be had"
        )
    most = len(literals) if most is None else min(most, len(literals))
    if len(literals) * most > 2_000:
        raise schema_error(
            path, "uniqueItems over so many values cannot be kept: set a smaller maxItems"
        )
    inner = _some_of(literals, least, most, writer)
    return _brackets(inner, writer, empty=least == 0)


def _some_of(literals: list[str], least: int, most: int, writer: Writer) -> str:
    """Return one value at least, each at most once, with commas, in their order."""
    rules, comma = writer.rules, f'"," {writer.space}'
    # behind[n]: what may follow where n values were taken, of those from some place on; None is nothing at all.
    behind: list[str | None] = ["" if n >= least else None for n in range(most + 1)]
    first: list[str] = []
    for literal in reversed(literals):
        here: list[str | None] = []
        after = behind[1]
        if after is not None:
            first.insert(0, f"{literal} {after}".strip())
        for taken in range(most + 1):
            ways = []
            following = behind[taken + 1] if taken < most else None
            if following is not None:
                ways.append(f"{comma} {literal} {following}".strip())
            skipped = behind[taken]
            if skipped is not None:
                ways.append(skipped)
            if not ways:
                here.append(None)
            elif ways == [""]:
                here.append("")
            elif "" in ways:
                here.append(rules.add(f"({ways[0]})?"))
            else:
                here.append(rules.add(" | ".join(ways)))
        behind = here
    return rules.add(" | ".join(first))


def _brackets(inner: str, writer: Writer, *, empty: bool) -> str:
    body = f'"[" {writer.space} {inner} {writer.space} "]"'
    return f'"[]" | {body}' if empty else body
