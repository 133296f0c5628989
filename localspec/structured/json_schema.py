"""JSON schema becomes a grammar: every text that the grammar lets through is valid under the schema.

Not every valid text comes through: properties come in the order of the schema, others than those it names only where
`additionalProperties` says so, and white space is a blank or an indented new line. A keyword that a grammar cannot
keep is refused by name; what is no keyword says nothing, as the standard has it.
"""

import json
from decimal import Decimal
from typing import Any

from localspec.errors import UsageError
from localspec.structured.arrays import array_body
from localspec.structured.disjoint import never_valid
from localspec.structured.keywords import ASSERTIONS, Schema, type_of, types_of
from localspec.structured.numbers import Bounds, integer_alternatives, number_alternatives
from localspec.structured.objects import object_body
from localspec.structured.references import References, listed
from localspec.structured.rules import Rules, choice, json_literal
from localspec.structured.schema_error import member, schema_error
from localspec.structured.strings import StringError, string_body
from localspec.structured.writer import Writer

MAX_CHARS = 1 << 20
_MAX_DEPTH = 60
_MAX_VISITS = 20_000
_MAX_MULTIPLES = 1_000
_LARGEST, _SMALLEST = Decimal(10**18), Decimal("1e-6")
_OF_VALUES = ASSERTIONS - {"type", "enum", "const"}


def schema_gbnf(schema: object) -> str:
    """Return the grammar of the JSON texts that are valid under a schema.

    Args:
        schema: as `json.loads` gives it.

    Raises:
        UsageError: it is no schema, allows nothing, or says what a grammar cannot keep.
    """
    rules = Rules()
    try:
        return rules.gbnf(_Converter(schema, rules).rule(schema, "", 0))
    except RecursionError:
        raise schema_error("", "it is nested too deeply") from None


def schema_from_text(text: str) -> Any:
    """Return a schema from its text.

    Raises:
        UsageError: it is no JSON, or too long.
    """
    if len(text) > MAX_CHARS:
        raise UsageError(
            f"the JSON schema has {len(text)} characters, more than {MAX_CHARS}: shorten it"
        )
    try:
        return json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise UsageError(
            f"the JSON schema is no JSON in line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"the JSON schema is no JSON: {' '.join(str(error).split())[:120]}"
        ) from None


class _Converter:
    """Writes the rules of one document.

    Args:
        document: the whole schema.
        rules: gets them.
    """

    def __init__(self, document: object, rules: Rules) -> None:
        self._references = References(document)
        self._rules = rules
        self._by_reference: dict[str, str] = {}
        self._visits = 0
        self.space = rules.add('(" " | "\\n" [ \\t]{0,20})?')
        self._any: str | None = None

    def rule(self, schema: object, path: str, depth: int) -> str:
        """Return the name of the rule for a schema."""
        self._visits += 1
        if depth > _MAX_DEPTH or self._visits > _MAX_VISITS:
            raise schema_error(path, "it is nested too deeply, or says too much")
        flat = self._references.flat(schema, path)
        reference = _reference(schema)
        if reference is None:
            return self._rules.add(self._body(flat, path, depth))
        # What contains itself comes here again within itself, and then has a name already.
        if reference not in self._by_reference:
            name = self._by_reference[reference] = self._rules.reserve()
            self._rules.define(name, self._body(flat, path, depth))
        return self._by_reference[reference]

    def _body(self, schema: Schema, path: str, depth: int) -> str:
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                return self._union(schema, keyword, path, depth)
        if "const" in schema or "enum" in schema:
            return self._values(schema, path)
        types = types_of(schema, path)
        if len(types) > 1 and not _says_more(schema):
            return (
                self._anything()
                if len(types) >= 6
                else choice([self._simple(each) for each in types])
            )
        return choice([self._of_type(schema, each, path, depth) for each in types])

    def _union(self, schema: Schema, keyword: str, path: str, depth: int) -> str:
        parts = listed(schema, keyword, path)
        where = member(path, keyword)
        if keyword == "oneOf":
            self._require_disjoint(parts, where)
        return choice(
            [self.rule(part, member(where, index), depth + 1) for index, part in enumerate(parts)]
        )

    def _require_disjoint(self, parts: list[Any], path: str) -> None:
        flat = self._references.flat
        for index, written in enumerate(parts):
            for other, under in enumerate(parts):
                if index != other and not never_valid(written, under, flat):
                    raise schema_error(
                        path,
                        f"what is valid under {index} may be valid under {other}, too: make it anyOf, or give them a "
                        "required property with different values",
                    )

    def _values(self, schema: Schema, path: str) -> str:
        values = [schema["const"]] if "const" in schema else schema["enum"]
        if not isinstance(values, list):
            raise schema_error(path, "enum takes a list of values")
        if "const" in schema and "enum" in schema:
            raise schema_error(path, "const beside enum: leave one of them out")
        beside = [each for each in schema if each in _OF_VALUES]
        if beside:
            raise schema_error(
                path, f"{beside[0]} beside enum or const: leave it out, the values say it"
            )
        if "type" in schema:
            types = types_of(schema, path)
            values = [each for each in values if _is_of(type_of(each), types)]
        if not values:
            raise schema_error(path, "no value is valid here: make what needs one optional")
        return choice([json_literal(each) for each in values])

    def _of_type(self, schema: Schema, kind: str, path: str, depth: int) -> str:
        if kind == "object":
            return object_body(schema, path, self._writer(depth))
        if kind == "array":
            return array_body(schema, path, self._writer(depth))
        if kind == "string":
            try:
                return string_body(schema, self._rules)
            except StringError as error:
                raise schema_error(path, str(error)) from None
        if kind in {"integer", "number"}:
            return self._number(schema, kind, path)
        return '"null"' if kind == "null" else '"true" | "false"'

    def _number(self, schema: Schema, kind: str, path: str) -> str:
        bounds = _bounds(schema, path)
        multiple = schema.get("multipleOf")
        if multiple is not None and (kind == "number" or multiple != 1):
            return self._multiples(bounds, multiple, path)
        alternatives = integer_alternatives if kind == "integer" else number_alternatives
        found = alternatives(bounds)
        if not found:
            raise schema_error(path, "its bounds leave no number")
        return choice(found)

    def _multiples(self, bounds: Bounds, multiple: object, path: str) -> str:
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

    def _anything(self) -> str:
        """Return the rule for any JSON."""
        if self._any is None:
            self._any = self._rules.reserve()
            simple = [self._simple(each) for each in ("string", "number", "boolean", "null")]
            self._rules.define(
                self._any,
                choice(
                    [
                        self._rules.add(self._of_type({}, each, "", 0))
                        for each in ("object", "array")
                    ]
                    + simple
                ),
            )
        return self._any

    def _simple(self, kind: str) -> str:
        return self._rules.add(self._of_type({}, kind, "", 0))

    def _writer(self, depth: int) -> Writer:
        return Writer(
            self._rules,
            self.space,
            self._anything,
            lambda schema, path: self.rule(schema, path, depth + 1),
        )


def _reference(schema: object) -> str | None:
    """Return what a schema that refers to others asserts; None where it refers to none."""
    if not isinstance(schema, dict) or not schema.keys() & {"$ref", "allOf"}:
        return None
    return json.dumps({key: value for key, value in schema.items() if key in ASSERTIONS})


def _says_more(schema: Schema) -> bool:
    """Say whether a schema asserts more than types."""
    return any(keyword in ASSERTIONS and keyword != "type" for keyword in schema)


def _is_of(kind: str, types: tuple[str, ...]) -> bool:
    return kind in types or (kind == "integer" and "number" in types)


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


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
