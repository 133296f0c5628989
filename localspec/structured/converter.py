"""Converter: the rules of one schema, in the order in which its parts need each other."""

import json
from typing import Any

from localspec.structured.arrays import array_body
from localspec.structured.disjoint import never_valid
from localspec.structured.keywords import ASSERTIONS, Schema, types_of
from localspec.structured.number_body import number_body
from localspec.structured.objects import object_body
from localspec.structured.references import References, listed
from localspec.structured.rules import Rules, choice
from localspec.structured.schema_error import member, schema_error
from localspec.structured.strings import StringError, string_body
from localspec.structured.values import values_body
from localspec.structured.writer import Writer

_MAX_DEPTH = 60
_MAX_VISITS = 20_000


class Converter:
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
            return values_body(schema, path)
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
            return number_body(schema, kind, path)
        return '"null"' if kind == "null" else '"true" | "false"'

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
