"""Values of arguments that stand alone: as JSON, as Python writes them, or in Gemma's own way."""

import ast
import json
import re
from collections.abc import Mapping

from localspec.calls import Tool

_MOST = 1 << 16
_NONE = re.compile(r"\bNone\b")
_QUOTED = re.compile(r"(['\"])(.*)\1", re.DOTALL)
_BARE_KEY = re.compile(r"([{,]\s*)([A-Za-z_][\w.-]*)\s*:")


class ValueNesting:
    """Follows a value that nothing marks the end of, so that its end is not looked for within quotes and brackets.

    Args:
        mark: a quote of several characters, as Gemma has it; empty where there is none.
    """

    def __init__(self, mark: str) -> None:
        self._quotes = tuple(filter(None, (mark, '"', "'")))
        self._quote = ""
        self._depth = 0

    @property
    def inside(self) -> bool:
        """Whether quotes or brackets are open."""
        return bool(self._quote) or self._depth > 0

    def step(self, text: str, at: int) -> int:
        """Go on at a place; return how many characters belong together there, 0 where more of them have to come."""
        escapes = text[at] == "\\" and len(self._quote) == 1
        quotes = (self._quote,) if self._quote else self._quotes
        quote = next((each for each in quotes if text.startswith(each, at)), "")
        if escapes:
            return 2 if at + 1 < len(text) else 0
        if quote:
            self._quote = "" if self._quote else quote
            return len(quote)
        if any(each.startswith(text[at:]) for each in quotes):
            return 0
        if not self._quote:
            self._depth += (text[at] in "{[(") - (text[at] in "}])")
        return 1


def is_text(tool: Tool, key: str) -> bool:
    """Say whether an argument can be nothing but a text."""
    properties = tool.parameters.get("properties")
    schema = properties.get(key) if isinstance(properties, Mapping) else None
    return isinstance(schema, Mapping) and schema.get("type") == "string"


def json_of(text: str, mark: str) -> str:
    """Return a value as JSON; what cannot be read as one is a text.

    Args:
        text: what the model wrote.
        mark: stands around texts within it, as Gemma has it; empty where quotes do.
    """
    for read in (json.loads, _python, lambda value: json.loads(_unmarked(value, mark)), _inner):
        try:
            return json.dumps(read(text), ensure_ascii=False, allow_nan=False)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
    return json.dumps(text, ensure_ascii=False)


def _python(text: str) -> object:
    if len(text) > _MOST:  # its parser is not made for what strangers write
        raise ValueError(len(text))
    return ast.literal_eval(text)


def _unmarked(text: str, mark: str) -> str:
    """Return JSON: texts in quotes, and keys as well."""
    if not mark:
        raise ValueError(text)
    parts = text.split(mark)
    return "".join(
        json.dumps(part) if number % 2 else _NONE.sub("null", _BARE_KEY.sub(r'\1"\2":', part))
        for number, part in enumerate(parts)
    )


def _inner(text: str) -> str:
    """Return a text in quotes that is neither JSON nor Python: a line ends in it, say."""
    quoted = _QUOTED.fullmatch(text)
    if quoted is None:
        raise ValueError(text)
    return quoted[2]
