"""Numbers of a schema: within bounds, or the multiples of something."""

from decimal import Decimal

from localspec.structured.keywords import Schema
from localspec.structured.numbers import Bounds, integer_alternatives, number_alternatives
from localspec.structured.rules import choice
from localspec.structured.schema_error import schema_error

_MAX_MULTIPLES = 1_000
_LARGEST, _SMALLEST = Decimal(10**18), Decimal("1e-6")


def number_body(schema: Schema, kind: str, path: str) -> str:
    """Return what a number of a schema looks like; `kind` is `integer` or `number`.

    Raises:
        UsageError: there is none, or a grammar cannot keep what is asked for.
    """
    bounds = _bounds(schema, path)
    multiple = schema.get("multipleOf")
    if multiple is not None and (kind == "number" or multiple != 1):
        return _multiples(bounds, multiple, path)
    alternatives = integer_alternatives if kind == "integer" else number_alternatives
    found = alternatives(bounds)
    if not found:
        raise schema_error(path, "its bounds leave no number")
    return choice(found)


def _multiples(bounds: Bounds, multiple: object, path: str) -> str:
    low, high = bounds.whole()
    whole = isinstance(multiple, int) and not isinstance(multiple, bool) and multiple > 0
    if not whole or low is None or high is None or (high - low) // multiple > _MAX_MULTIPLES:  # type: ignore[operator]
        raise schema_error(
            path,
            f"multipleOf {str(multiple)[:20]} cannot be kept: only a whole number, between minimum and maximum, with up to "
            f"{_MAX_MULTIPLES} multiples",
        )
    assert isinstance(multiple, int)  # noqa: S101 - as `whole` says
    found = [f'"{each}"' for each in range(low + -low % multiple, high + 1, multiple)]
    if not found:
        raise schema_error(path, "its bounds leave no number")
    return choice(found)


def _bounds(schema: Schema, path: str) -> Bounds:
    low, high = (_decimal(schema, each, path) for each in ("minimum", "maximum"))
    above, below = (
        _decimal(schema, each, path) for each in ("exclusiveMinimum", "exclusiveMaximum")
    )
    is_above = above is not None and (low is None or above >= low)
    is_below = below is not None and (high is None or below <= high)
    return Bounds(above if is_above else low, below if is_below else high, is_above, is_below)


def _decimal(schema: Schema, keyword: str, path: str) -> Decimal | None:
    value = schema.get(keyword)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise schema_error(path, f"{keyword} is {str(value)[:40]}: it takes a number")
    decimal = Decimal(str(value))
    if abs(decimal) >= _LARGEST or (decimal and abs(decimal) < _SMALLEST):
        raise schema_error(path, f"{keyword} is {value}: a grammar writes no such number out")
    return decimal
