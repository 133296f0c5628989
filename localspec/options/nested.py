"""Options that lie in each other: their names all told, and how some of them are changed."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from localspec.options.option import Option, own_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _typeshed import DataclassInstance

    T = TypeVar("T", bound=DataclassInstance)


@cache
def options_of(kind: type[DataclassInstance]) -> tuple[Option, ...]:
    """Return the options of a class in their order, those of the classes in its fields among them."""
    own = {each.field: each for each in own_options(kind)}
    found: list[Option] = []
    for each in fields(kind):
        if each.name in own:
            found.append(own[each.name])
        else:
            found += options_of(_class_of(each.type))
    return tuple(found)


def values_of(options: DataclassInstance) -> dict[str, Any]:
    """Return the values of all options by the names that users know."""
    found: dict[str, Any] = {}
    own = {each.field: each for each in own_options(type(options))}
    for each in fields(options):
        value = getattr(options, each.name)
        found |= {own[each.name].name: value} if each.name in own else values_of(value)
    return found


def changed(options: T, values: Mapping[str, Any]) -> T:
    """Return options with other values.

    Args:
        options: what stays where nothing is said.
        values: by the names that users know; other names are nobody's, and left alone.

    Raises:
        UsageError: a value is of the wrong type, or out of its range, or two cannot be combined.
    """
    changes: dict[str, Any] = {}
    own = {each.field: each for each in own_options(type(options))}
    for each in fields(options):
        if each.name not in own:
            changes[each.name] = changed(getattr(options, each.name), values)
        elif own[each.name].name in values:
            changes[each.name] = values[own[each.name].name]
    return replace(options, **changes)


def _class_of(annotation: object) -> type[DataclassInstance]:
    assert isinstance(annotation, type), annotation  # noqa: S101 - a field is an option, or a class of them
    assert is_dataclass(annotation), annotation  # noqa: S101
    return annotation
