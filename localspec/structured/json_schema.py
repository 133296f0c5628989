"""JSON schema becomes a grammar: every text that the grammar lets through is valid under the schema.

Not every valid text comes through: properties come in the order of the schema, others than those it names only where
`additionalProperties` says so, and white space is a blank or an indented new line. A keyword that a grammar cannot
keep is refused by name; what is no keyword says nothing, as the standard has it.
"""

import json
from typing import Any

from localspec.errors import UsageError
from localspec.structured.converter import Converter
from localspec.structured.rules import Rules
from localspec.structured.schema_error import schema_error

MAX_CHARS = 1 << 20


def schema_gbnf(schema: object) -> str:
    """Return the grammar of the JSON texts that are valid under a schema.

    Args:
        schema: as `json.loads` gives it.

    Raises:
        UsageError: it is no schema, allows nothing, or says what a grammar cannot keep.
    """
    rules = Rules()
    try:
        return rules.gbnf(Converter(schema, rules).rule(schema, "", 0))
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


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
