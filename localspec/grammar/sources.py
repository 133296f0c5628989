"""What an answer has to look like, as its user wrote it, becomes a grammar as llguidance takes it; what is wrong is named by its place."""

import json
import re
from contextlib import suppress
from functools import lru_cache
from typing import Any

from localspec.errors import UsageError
from localspec.grammar.compiler import GrammarLost, require_compiles, start_compiler
from localspec.grammar.document import schema_error
from localspec.grammar.gbnf import lark_of_gbnf
from localspec.grammar.json_schema import Rewritten, rewritten
from localspec.grammar.matcher import GrammarRefused, one_line, regex_source, schema_source

_MAX_CHARS = 1 << 20
_MOST_COMPILED = 64
_MOST_TRIES = 200
_LARK_TOKEN = re.compile(
    r'"(?:\\.|[^"\\\n])*"|(?:(?://|#)[^\n]*)|/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n])+/'
    r"|(?P<special><[^<>\s][^<>\n]*>)"
)
_PLACE = re.compile(r"^at \d+\(\d+\): (?:wrong pattern: )?")
_UNSATISFIABLE = "Unsatisfiable"


class CompilerLost(UsageError):
    """A schema takes too long to compile, or too much memory, or ends what compiles it."""


@lru_cache(maxsize=_MOST_COMPILED)
def source_of(kind: str, text: str) -> str:
    """Return a grammar as llguidance takes it.

    Args:
        kind: json_schema, grammar (which is GBNF), regex or lark.
        text: as its user wrote it.

    Raises:
        UsageError: it is wrong, or cannot be kept, with the place.
    """
    start_compiler()  # while llguidance is imported here
    if len(text) > _MAX_CHARS:
        raise UsageError(
            f"the {kind} has {len(text)} characters, more than {_MAX_CHARS}: shorten it"
        )
    if any("\ud800" <= each <= "\udfff" for each in text):
        raise UsageError(f"the {kind} has half of a character, which is not text")
    if kind == "json_schema":
        return _schema_source(enforced_schema(_parsed(text)))
    if kind == "grammar":
        source = lark_of_gbnf(text)
    elif kind == "regex":
        source = regex_source(text)
    else:
        source = text
        _require_text(text)
    try:
        require_compiles(source)
    except GrammarRefused as error:
        # The place is one in the grammar that a regex becomes.
        reason = _PLACE.sub("", str(error)) if kind == "regex" else error
        raise UsageError(f"the {kind} is wrong: {reason}") from None
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


def enforced_schema(schema: object) -> dict[str, Any]:
    """Return a JSON schema as llguidance takes it.

    Raises:
        UsageError: it is no schema, or says what a mask cannot keep, with the place.
    """
    part = rewritten(schema)
    try:
        require_compiles(_schema_source(part.schema))
    except GrammarLost as error:
        raise CompilerLost(str(schema_error("", str(error)))) from None
    except GrammarRefused as error:
        place, reason = _innermost(part, str(error))
        raise schema_error(place, _in_our_words(reason)) from None
    if part.unproven:
        # The alternatives are disjoint, with more properties than are written.
        narrower = rewritten(schema, proven=True).schema
        with suppress(GrammarRefused):
            require_compiles(_schema_source(narrower))
            return narrower
    return part.schema


def _innermost(schema: Rewritten, reason: str) -> tuple[str, str]:
    """Return the place of an innermost part that llguidance refuses by itself, and why: it says not where."""
    for place, part in schema.parts[:_MOST_TRIES]:
        try:
            require_compiles(_schema_source({**part, "$defs": schema.schema["$defs"]}))
        except GrammarLost:
            break
        except GrammarRefused as error:
            if str(error).startswith(_UNSATISFIABLE) == reason.startswith(_UNSATISFIABLE):
                return place, str(error)
    return "", reason


def _in_our_words(reason: str) -> str:
    """Return what llguidance says, in our words."""
    if reason.startswith("oneOf"):
        return (
            "oneOf: what is valid under one alternative may be valid under another, too: make it anyOf, or give them a "
            "required property with different values"
        )
    if reason.startswith(_UNSATISFIABLE):
        why = reason.partition(": ")[2].partition(" while processing")[0]
        return f"no value is valid here ({why}): make what needs one optional"
    return reason


def _schema_source(schema: Any) -> str:
    try:
        return schema_source(json.dumps(schema))
    except ValueError as error:  # half of a character, say
        raise schema_error("", str(error)) from None
