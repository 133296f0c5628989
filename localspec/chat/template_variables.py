"""Variables of a chat template that a user sets: which ones it reads, found in its text; nothing of it is run."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from localspec.errors import UsageError
from localspec.options import cut
from localspec.options.reply import OWN_VARIABLES

_BLOCK = re.compile(r"\{[%{](.*?)[%}]\}", re.DOTALL)
_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_TEXT = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_ELSE = re.compile(r"(?:[.|]|\bis(?:\s+not)?\s)\s*[A-Za-z_]\w*|\b[A-Za-z_]\w*\s*(?:\(|=(?!=))")
"""Attributes, filters, tests, functions, and names of arguments."""
_NAME = re.compile(r"\b[A-Za-z_]\w*")
_BOUND = re.compile(r"\b(?:for\s+([\w\s,]+?)\s+in\b|macro\s+(\w+\s*\([^)]*\)))")
_ASSIGNED = re.compile(r"\bset\s+(\w+)\s*(?:=(?!=)\s*(.*))?", re.DOTALL)
_WORDS_OF_JINJA = (
    "and block break call continue do elif else endblock endcall endfilter endfor endgeneration endif endmacro endset extends "
    "false False filter for from generation if import in include is loop macro namespace none None not or recursive set true "
    "True self varargs kwargs caller ns defined undefined string mapping iterable sequence number"
)
_WORDS = frozenset(_WORDS_OF_JINJA.split())
_LISTED = 8


def read_variables(source: str) -> frozenset[str]:
    """Return the variables that a template reads and does not set itself, but for those that localspec sets."""
    found, bound = set[str](), set[str]()
    for block in _BLOCK.findall(_COMMENT.sub("", source)):
        code = _TEXT.sub("''", block).strip("-+ \n\t")
        for several, macro in _BOUND.findall(code):
            bound |= set(re.findall(r"\w+", several or macro))
        assigned = _ASSIGNED.match(code)
        names = set(
            _NAME.findall(_ELSE.sub(_kept, code if assigned is None else assigned[2] or ""))
        )
        if assigned is not None and assigned[1] not in names:
            bound |= {assigned[1]} - found
        found |= names
    return frozenset(found - bound - _WORDS - OWN_VARIABLES)


def _kept(found: re.Match[str]) -> str:
    """Return what is left where a name is no variable."""
    return "(" if found[0].endswith("(") else " "


def require_read(model: str, variables: Mapping[str, Any], source: str) -> None:
    """Raise UsageError, which names one, unless a template reads all of some variables."""
    known = read_variables(source)
    for name in variables:
        if name in known:
            continue
        near = get_close_matches(name, known, 1)
        some = sorted(known)
        listed = ", ".join(some[:_LISTED]) + (", …" if len(some) > _LISTED else "")
        advice = f"did you mean {near[0]}?" if near else f"it reads {listed or 'none'}"
        raise UsageError(f"{model}'s chat template does not read {cut(name)}: {advice}")
