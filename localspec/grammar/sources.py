"""What an answer has to look like, as its user wrote it, becomes a grammar as llguidance takes it; what is wrong is named by its place."""

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from localspec.errors import UsageError
from localspec.grammar.gbnf import lark_of_gbnf
from localspec.grammar.keywords import IN_PLACE, member, schema_error, subschemas
from localspec.grammar.matcher import (
    GrammarRefused,
    byte_tokenizer,
    compiled,
    one_line,
    regex_source,
    schema_source,
)
from localspec.grammar.normal_form import NormalForm, normal_form

_MAX_CHARS = 1 << 20
_KEPT = 64
_MOST_TRIES = 200
_LARK_TOKEN = re.compile(
    r'"(?:\\.|[^"\\\n])*"|(?:(?://|#)[^\n]*)|/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n])+/'
    r"|(?P<special><[^<>\s][^<>\n]*>)"
)
_UNSATISFIABLE = "Unsatisfiable"
# What llguidance says, and what we do.
_REASONS = {
    "oneOf": "what is valid under one alternative may be valid under another, too: make it anyOf, or give them a required "
    "property with different values",
    _UNSATISFIABLE: "no value is valid here: make what needs one optional",
}


@lru_cache(maxsize=_KEPT)
def source_of(kind: str, text: str) -> str:
    """Return a grammar as llguidance takes it.

    Args:
        kind: json_schema, grammar (which is GBNF), regex or lark.
        text: as its user wrote it.

    Raises:
        UsageError: it is wrong, or cannot be kept, with the place.
    """
    if len(text) > _MAX_CHARS:
        raise UsageError(
            f"the {kind} has {len(text)} characters, more than {_MAX_CHARS}: shorten it"
        )
    if any("\ud800" <= each <= "\udfff" for each in text):
        raise UsageError(f"the {kind} has half of a character, which is not text")
    if kind == "json_schema":
        return _of_schema(normal_form(_parsed(text)))
    if kind == "grammar":
        source = lark_of_gbnf(text)
    elif kind == "regex":
        source = regex_source(text)
    else:
        source = text
        _require_text(text)
    try:
        compiled(source, byte_tokenizer())
    except GrammarRefused as error:
        raise UsageError(f"the {kind} is wrong: {error}") from None
    return source


def _require_text(lark: str) -> None:
    """Refuse a grammar that refers to tokens: an answer is text, whatever model gives it."""
    for match in _LARK_TOKEN.finditer(lark):
        if match["special"]:
            line = lark.count("\n", 0, match.start()) + 1
            raise UsageError(
                f"the lark is wrong in line {line}: {one_line(match['special'][:40])} is a token, but an answer is text: put it in quotes"
            )


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise UsageError(
            f"the JSON schema is not valid JSON in line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"the JSON schema is not valid JSON: {' '.join(str(error).split())[:120]}"
        ) from None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not valid JSON")


def _of_schema(normal: NormalForm) -> str:
    source = _schema_source(normal.schema)
    try:
        compiled(source, byte_tokenizer())
    except GrammarRefused as error:
        place, reason = _innermost(normal, str(error))
        said = next(
            (ours for theirs, ours in _REASONS.items() if reason.startswith(theirs)), reason
        )
        raise schema_error(place, said) from None
    return source


def _innermost(normal: NormalForm, reason: str) -> tuple[str, str]:
    """Return the place of the innermost part that llguidance refuses by itself, and why.

    It says what is wrong, but not where.
    """
    definitions = normal.schema["$defs"]
    part, place, tries = normal.schema, "", 0
    while True:
        for key, child in _children(part, needed=reason.startswith(_UNSATISFIABLE)):
            inner = child
            if isinstance(inner, dict) and "$ref" in inner:
                inner = definitions[inner["$ref"].rpartition("/")[2]]
            inner = {"enum": []} if inner is False else inner
            tries += 1
            if inner is True or tries > _MOST_TRIES:
                continue
            try:
                compiled(_schema_source({**inner, "$defs": definitions}), byte_tokenizer())
            except GrammarRefused as error:
                if str(error).startswith(_UNSATISFIABLE) and not reason.startswith(_UNSATISFIABLE):
                    continue
                part, reason = inner, str(error)
                place = normal.places.get(
                    id(inner), member(place, *key) if child is False else place
                )
                break
        else:
            return place, reason


def _children(part: dict[str, Any], *, needed: bool) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield the parts of a schema with their places; `needed` are those without which it has no instance."""
    for place, child in subschemas(part):
        keyword, name = place[0], place[-1]
        if (
            not needed
            or keyword in IN_PLACE
            or (keyword == "properties" and name in part.get("required", ()))
        ):
            yield place, child


def _schema_source(schema: Any) -> str:
    try:
        return schema_source(json.dumps(schema))
    except ValueError as error:  # half of a character, say
        raise schema_error("", str(error)) from None
