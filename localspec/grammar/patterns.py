r"""Patterns of JSON schema, which are ECMAScript's, as llguidance reads them, which is Rust's way; and formats.

Where ECMAScript and Python read a part of a pattern differently, as `\s` or `.`, the translation matches only what both
match: the answer's reader may be either.
"""

import re
from typing import NamedTuple

_PIECE = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|u\{[0-9a-fA-F]+\}|.)|\[\^?|.", re.DOTALL)
_SPACE = r"\t-\r\x20\xa0\u{1680}\u{2000}-\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}"
# By letter: what all readers take it for, and what one of them may.
_SETS = {
    "d": ("0-9", r"\p{Nd}"),
    "w": ("0-9A-Za-z_", r"\p{L}\p{M}\p{N}\p{Pc}"),
    "s": (_SPACE, rf"{_SPACE}\x1c-\x1f\x85\u{{feff}}"),
}


_ANY = r"[^\n\r\u{2028}\u{2029}]"
_WRITABLE = r"--[\x00-\x07\x0b\x0e-\x1f\x7f]]"
"""Ends a class without characters that llguidance leaves out of a text, or writes a quote for."""


def rust_pattern(source: str) -> str:
    """Return a pattern as Rust writes it; what Rust does not take is left for llguidance to refuse."""
    parts: list[str] = []
    opening = ""  # of the class of characters that a piece is in
    for piece in _PIECE.findall(source):
        if piece[0] == "\\" and (letter := piece[1:]).lower() in _SETS:
            small, large = _SETS[letter.lower()][:: -1 if opening == "[^" else 1]
            part = f"[{small}]" if letter.islower() else f"[[^{large}]{_WRITABLE}"
        elif opening and piece[0] in "[&~":
            part = "".join(rf"\{each}" for each in piece)
        elif piece[0] == "[":
            opening = piece
            part = f"[{piece}"
        elif piece == "]" and opening and parts[-1] != f"[{opening}":
            opening = ""
            part = f"]{_WRITABLE}"
        elif not opening and (piece in ".\x7f" or piece[:2] in {r"\x", r"\u"} or piece < " "):
            part = f"[{_ANY if piece == '.' else f'[{piece}]'}{_WRITABLE}"
        else:
            part = piece
        parts.append(part)
    return "".join(parts)


_ITEM = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?:\?(?:[:=!>]|<[=!]|P?<\w+>|[a-z-]+:))?|.", re.DOTALL
)
_QUANTIFIER = re.compile(r"(?:[*+?]|\{\d+(?:,\d*)?\})[?+]?")
_PLAIN_GROUP = re.compile(r"\((?:\?(?::|P?<\w+>))?")
_ANYTHING = "\ue000"
"""Stands for any text; no pattern has it."""


class _Group(NamedTuple):
    """A part in parentheses; `after` says how often."""

    opening: str
    alternatives: "list[list[_Group | str]]"
    after: str


def whole_pattern(source: str) -> str:
    """Return what matches, as a whole, the texts in which a pattern of JSON schema is found, as Rust writes it.

    An anchor is left out where its text begins or ends, in alternatives, too: llguidance knows none.
    """
    try:
        alternatives, rest = _alternatives(source)
    except (ValueError, RecursionError):  # something is not closed
        return rust_pattern(source)
    if rest or _ANYTHING in source:
        return rust_pattern(source)  # which llguidance refuses, too
    return rust_pattern(_whole(alternatives, True, True)).replace(_ANYTHING, "(?s:.*)")


def _alternatives(source: str) -> "tuple[list[list[_Group | str]], str]":
    """Return the alternatives that a pattern begins with, up to a parenthesis that closes, and the rest."""
    found: list[list[_Group | str]] = [[]]
    while (item := _ITEM.match(source)) and item[0] != ")":
        source = source[item.end() :]
        if item[0] == "|":
            found.append([])
        elif item[0].startswith("("):
            inner, rest = _alternatives(source)
            if not rest:
                raise ValueError("a parenthesis is not closed")
            often = _QUANTIFIER.match(rest, 1)
            after = often[0] if often else ""
            found[-1].append(_Group(item[0], inner, after))
            source = rest[1 + len(after) :]
        elif item[0] == "[":
            raise ValueError("a class is not closed")
        else:
            found[-1].append(item[0])
    return found, source


def _whole(alternatives: "list[list[_Group | str]]", left: bool, right: bool) -> str:
    """Return alternatives with any text before them (`left`) and behind them (`right`) but where one is anchored."""
    return f"(?:{'|'.join(_whole_branch(each, left, right) for each in alternatives)})"


def _whole_branch(items: "list[_Group | str]", left: bool, right: bool) -> str:
    before, behind = left, right
    while left and items[:1] == ["^"]:
        before, items = False, items[1:]
    while right and items[-1:] == ["$"]:
        behind, items = False, items[:-1]
    parts = list[str]()
    for at, item in enumerate(items):
        # Of a group with anchors some alternatives begin a text, and others do not.
        first = at == 0 and before and _is_anchored(item, 0, "^")
        last = at == len(items) - 1 and behind and _is_anchored(item, -1, "$")
        before, behind = before and not first, behind and not last
        if isinstance(item, _Group) and (first or last):
            parts.append(f"{item.opening}{_whole(item.alternatives, first, last)})")
        else:
            parts.append(_text(item))
    return f"{_ANYTHING * before}{''.join(parts)}{_ANYTHING * behind}"


def _is_anchored(item: "_Group | str", at: int, anchor: str) -> bool:
    if isinstance(item, str):
        return item == anchor
    return (
        not item.after
        and _PLAIN_GROUP.fullmatch(item.opening) is not None
        and any(each and _is_anchored(each[at], at, anchor) for each in item.alternatives)
    )


def _text(item: "_Group | str") -> str:
    if isinstance(item, str):
        return item
    inside = "|".join("".join(map(_text, each)) for each in item.alternatives)
    return f"{item.opening}{inside}){item.after}"


_YEAR = "[1-9][0-9]{3}"
_DATE = (
    f"{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"
    "02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
FORMATS = {"date": _DATE, "time": _TIME, "date-time": f"{_DATE}T{_TIME}"}
"""As patterns: llguidance's own have years 0 and 29 February in any year, and leap seconds."""
NATIVE_FORMATS = {each: each for each in ("duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri")}  # fmt: skip
NATIVE_FORMATS |= {"iri": "uri", "uri-reference": "uri", "iri-reference": "uri"}
NATIVE_FORMATS |= {"idn-email": "email", "idn-hostname": "hostname"}
"""Those that llguidance knows, or a narrower one that it does."""
REFUSED_FORMATS = ("regex", "uri-template", "json-pointer", "relative-json-pointer")
"""Other formats of the standard; a name that is none of it says nothing."""
