r"""Strings of JSON schema: patterns, which are ECMAScript's, as llguidance reads them, which is Rust's way; and formats.

Where ECMAScript and Python read a part of a pattern differently, as `\s` or `.`, the translation matches only what both
match: whoever checks the answer may be either. A format is no wider than every checker takes it.
"""

import re

_OUTSIDE = re.compile(
    r"(?P<looks>\(\?(?:=|!|<=|<!))|(?P<flags>\(\?[ims]+[:)])|(?P<group>\((?:\?:|\?P?<[A-Za-z_]\w*>|(?!\?)))"
    r"|(?P<counted>(?:\{\d{1,6}(?:,\d{0,6})?\}|[*+?])(?![+]))\??|(?P<braced>\{,\d+\})|(?P<class>\[\^?+)(?!\])"
    r"|(?P<plain>[$^|)])|(?P<any>\.)|\\(?P<escape>.)|(?P<literal>[^[(*+?\\])",
    re.DOTALL,
)
_INSIDE = re.compile(
    r"(?P<end>\])|\\(?P<escape>.)|(?P<range>-(?!\]))|(?P<literal>[^\\\]])", re.DOTALL
)
_CODE = re.compile(
    r"u[dD]([89abAB][0-9a-fA-F]{2})\\u[dD]([c-fC-F][0-9a-fA-F]{2})|(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]{1,6})\})"
)
_PROPERTY = re.compile(r"[pP]\{[\w=]+\}")
_SPACE = r"\t-\r\x20\xa0\u{1680}\u{2000}-\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}"
# By letter: what all readers take it for, and what one of them may.
_SETS = {
    "d": ("0-9", r"\p{Nd}"),
    "w": ("0-9A-Za-z_", r"\p{L}\p{M}\p{N}\p{Pc}"),
    "s": (_SPACE, rf"{_SPACE}\x1c-\x1f\x85\u{{feff}}"),
}
_NEVER = r"\x00-\x07\x0b\x0e-\x1f\x7f"
"""Characters that are never written. llguidance would leave them out of a text, and write a quote for a class of them."""
NEVER_WRITTEN = re.compile(f"[{_NEVER}]")
_SET_ESCAPES = frozenset(rf"\{letter}" for each in _SETS for letter in (each, each.upper()))
_ANY, _WIDE_ANY = rf"[^{_NEVER}\n\r\u{{2028}}\u{{2029}}]", rf"[^{_NEVER}\n]"


class PatternError(Exception):
    """What of a pattern cannot be kept."""


def translated(source: str, *, wide: bool = False) -> str:
    """Return a pattern as Rust writes it; it is to be found anywhere in a text, as in ECMAScript.

    Args:
        source: as a schema has it.
        wide: match whatever one of the two would match, instead of what both do.

    Raises:
        PatternError: it has what a grammar cannot keep, or what ECMAScript and Python do not agree on.
    """
    found, at = [], 0
    while at < len(source):
        match = _OUTSIDE.match(source, at)
        if match is None:
            raise PatternError(f"{source[at : at + 3]} in a place of its own")
        at, kind = match.end(), match.lastgroup
        if kind == "class":
            part, at = _class(source, at, match["class"], wide=wide)
            part = _writable(part)
        elif kind == "escape":
            part, at = _escape(source, at, match["escape"], wide=wide)
            part = _writable(part)
        elif kind in {"looks", "braced"}:
            raise PatternError(
                "look-around" if kind == "looks" else f"{match[0]}, read in two ways"
            )
        elif kind == "group":
            part = "(?:"
        elif kind == "literal":
            part = _writable(_literal(match["literal"]))
        else:
            # What asks for the shortest match matches the same in all.
            part = {"any": _WIDE_ANY if wide else _ANY, "counted": match["counted"]}.get(
                str(kind)
            ) or match[0]
        found.append(part)
    return "".join(found)


def _class(source: str, at: int, opening: str, *, wide: bool) -> tuple[str, int]:
    """Return a class of characters whose members begin at some place, and where it ends."""
    found = [opening]
    # Within what is excepted, the larger set is the safe one.
    wide_members = wide != (opening == "[^")
    while match := _INSIDE.match(source, at):
        at, kind = match.end(), match.lastgroup
        if kind == "end":
            return f"{''.join(found)}]", at
        if kind == "escape" and match["escape"] == "b":
            part = r"\x08"
        elif kind == "escape":
            part, at = _escape(source, at, match["escape"], wide=wide_members)
        elif (
            kind == "range"
            and len(found) > 1
            and not (
                found[-1] == "-" or found[-1].endswith("]") or source[at : at + 2] in _SET_ESCAPES
            )
        ):
            part = "-"
        else:
            part = _literal(match[0])
        found.append(part)
    raise PatternError("[ that is never closed")


def _escape(source: str, at: int, letter: str, *, wide: bool) -> tuple[str, int]:
    """Return what a backslash and a letter, behind which a place is, stand for, and where that ends."""
    if letter.lower() in _SETS:
        small, large = _SETS[letter.lower()][:: -1 if wide else 1]
        return (f"[{small}]" if letter.islower() else f"[^{large}]"), at
    if letter in "nrtfv":
        return f"\\{letter}", at
    if match := _CODE.match(source, at - 1):
        return _literal(_character(match)), match.end()
    if match := _PROPERTY.match(source, at - 1):
        return f"\\{match[0]}", match.end()
    if letter == "0" and not source[at : at + 1].isdecimal():
        return r"\x00", at
    if letter.isalnum():
        raise PatternError(f"\\{letter}")
    return _literal(letter), at


def _character(match: re.Match[str]) -> str:
    high, low, *codes = match.groups()
    if high:
        return chr(0x10000 + ((int(high, 16) - 0x800) << 10) + int(low, 16) - 0xC00)
    code = int("".join(filter(None, codes)), 16)
    if 0xD800 <= code < 0xE000 or code > 0x10FFFF:
        raise PatternError("half of a character")
    return chr(code)


def _writable(characters: str) -> str:
    """Return one character, or a class, without those that are never written."""
    return characters if characters.isalnum() else f"[{characters}--[{_NEVER}]]"


def _literal(char: str) -> str:
    return char if char.isalnum() else f"\\u{{{ord(char):x}}}"


_YEAR = "[1-9][0-9]{3}"
_DATE = (
    f"{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"
    "02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_ZONE = "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9][0-9]|[0-9])"
_HEX = "[0-9a-fA-F]"
_LABEL = "[a-zA-Z0-9](?:-?[a-zA-Z0-9]){0,20}"
_HOST = rf"{_LABEL}(?:\.{_LABEL}){{1,4}}"
_PATH = r"(?:/[a-zA-Z0-9._\x7e-]{0,60}){0,8}"
_COUNT = "[0-9]{1,4}"
_DAYS = f"{_COUNT}(?:Y(?:{_COUNT}M(?:{_COUNT}D)?)?|M(?:{_COUNT}D)?|D)"
_SPAN = f"T{_COUNT}(?:H(?:{_COUNT}M(?:{_COUNT}S)?)?|M(?:{_COUNT}S)?|S)"

FORMATS = {
    "date": _DATE,
    "time": f"{_CLOCK}{_ZONE}",
    "date-time": f"{_DATE}T{_CLOCK}{_ZONE}",
    "duration": f"P(?:{_DAYS}(?:{_SPAN})?|{_SPAN}|{_COUNT}W)",
    "uuid": f"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}",
    "ipv4": rf"{_BYTE}(?:\.{_BYTE}){{3}}",
    "ipv6": f"{_HEX}{{1,4}}(?::{_HEX}{{1,4}}){{7}}",
    "email": rf"[a-zA-Z0-9](?:[.+_-]?[a-zA-Z0-9]){{0,40}}@{_HOST}",
    "hostname": _HOST,
    "uri": f"https?://{_HOST}(?::[1-9][0-9]{{0,3}})?{_PATH}",
    "uri-reference": f"(?:https?://{_HOST})?{_PATH}",
    "json-pointer": r"(?:/(?:[a-zA-Z0-9._-]|\x7e[01]){0,60}){0,20}",
}
FORMATS |= {"idn-email": FORMATS["email"], "idn-hostname": _HOST}
FORMATS |= {"iri": FORMATS["uri"], "iri-reference": FORMATS["uri-reference"]}
NOT_KEPT = frozenset({"regex", "uri-template", "relative-json-pointer"})
"""Other formats of the standard; what is none of it says nothing."""
