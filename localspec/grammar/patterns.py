r"""Patterns of JSON schema, which are ECMAScript's, as llguidance reads them, which is Rust's way; and formats.

Where ECMAScript and Python read a part of a pattern differently, as `\s` or `.`, the translation matches only what both
match: the answer's reader may be either.
"""

import re

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
