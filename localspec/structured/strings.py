"""Strings of JSON: any, of some length, of a format, or as a pattern says."""

from collections.abc import Mapping

from localspec.structured.characters import inverse, spelled
from localspec.structured.pattern import Pattern, PatternError
from localspec.structured.rules import Rules

_MOST = 100_000
_HEX = "[0-9a-fA-F]"
_UNIT = f'("\\\\u" ([0-9a-cA-CefEF] {_HEX}{{3}} | [dD] [0-7] {_HEX}{{2}}))'
_PAIR = f'("\\\\u" [dD] [89abAB] {_HEX}{{2}} "\\\\u" [dD] [c-fC-F] {_HEX}{{2}})'
_PLAIN = "[\\x20-\\x21\\x23-\\x5b\\x5d-\\ud7ff\\ue000-\\U0010ffff]"
CHARACTER = f'{_PLAIN} | "\\\\" ["\\\\/bfnrt] | {_UNIT} | {_PAIR}'
"""One character of a string, escaped or not; a pair of surrogates is one."""

_YEAR = "[1-9] [0-9]{3}"
_DATE = (
    f'{_YEAR} "-" (("0" [13578] | "1" [02]) "-" ("0" [1-9] | [12] [0-9] | "3" [01]) | ("0" [469] | "11") "-" '
    '("0" [1-9] | [12] [0-9] | "30") | "02-" ("0" [1-9] | "1" [0-9] | "2" [0-8]))'
)
_CLOCK = '([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9] ":" [0-5] [0-9] ("." [0-9]{1,6})?'
_ZONE = '("Z" | [+-] ([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9])'
_BYTE = '("25" [0-5] | "2" [0-4] [0-9] | "1" [0-9]{2} | [1-9] [0-9] | [0-9])'
_LABEL = "[a-zA-Z0-9] ([a-zA-Z0-9-]{0,20} [a-zA-Z0-9])?"
_HOST = f'{_LABEL} ("." {_LABEL}){{1,4}}'
FORMATS = {
    "date": _DATE,
    "time": f"{_CLOCK} {_ZONE}",
    "date-time": f'{_DATE} "T" {_CLOCK} {_ZONE}',
    "uuid": f'{_HEX}{{8}} "-" {_HEX}{{4}} "-" {_HEX}{{4}} "-" {_HEX}{{4}} "-" {_HEX}{{12}}',
    "ipv4": f'{_BYTE} "." {_BYTE} "." {_BYTE} "." {_BYTE}',
    "ipv6": f'{_HEX}{{1,4}} (":" {_HEX}{{1,4}}){{7}}',
    "email": f'[a-zA-Z0-9] ([.+_-]? [a-zA-Z0-9]){{0,40}} "@" {_HOST}',
    "hostname": _HOST,
    "uri": f'"http" "s"? "://" {_HOST} (":" [1-9] [0-9]{{0,3}})? ("/" [a-zA-Z0-9._~-]{{0,60}}){{0,8}}',
}
"""What a string of each format may look like: no more than every checker accepts."""
_FORMAT_LENGTHS = {"date": (10, 10), "uuid": (36, 36)}


class StringError(Exception):
    """What of a schema for a string cannot be kept."""


def string_body(schema: Mapping[str, object], rules: Rules) -> str:
    """Return what a string of a schema looks like, quotes included.

    Raises:
        StringError: a grammar cannot keep it.
    """
    least, most = _length(schema, "minLength") or 0, _length(schema, "maxLength")
    if most is not None and least > most:
        raise StringError(f"minLength {least} and maxLength {most} leave no string")
    if "pattern" in schema:
        return _of_pattern(schema, rules, least, most)
    if "format" in schema:
        return _of_format(schema, least, most)
    return _in_quotes(rules.times(rules.add(CHARACTER), least, most))


def plain_keys(taken: list[str], rules: Rules) -> str:
    """Return what the key of a property may look like that is none of those taken; no escapes, at least a character."""
    return f'"\\"" {_other_than(sorted(set(taken)), rules)} "\\"" '.strip()


def _other_than(taken: list[str], rules: Rules) -> str:
    """Return any text of at least one character but these."""
    character = rules.add(spelled(inverse(((0, 0x1F), (0x22, 0x22), (0x5C, 0x5C), (0x7F, 0x9F)))))
    beginnings: dict[str, list[str]] = {}
    for text in taken:
        beginnings.setdefault(text[:1], []).append(text[1:])
    here = [text for text in beginnings if text]
    if not here:
        return f"{character}{{1,60}}"
    codes = [(ord(text), ord(text)) for text in here]
    other = spelled(inverse([*codes, (0, 0x1F), (0x22, 0x22), (0x5C, 0x5C), (0x7F, 0x9F)]))
    found = [f"{other} {character}{{0,60}}"] if other else []
    for text in here:
        rests = beginnings[text]
        if ord(text) < 0x20 or text in '"\\':
            continue  # spelled with an escape, so none of ours
        longer = _other_than(rests, rules)
        code = f"[\\U{ord(text):08x}]"
        found.append(f"{code} {rules.add(longer)}" if "" in rests else f"{code} ({longer})?")
    return rules.add(" | ".join(found))


def _of_pattern(schema: Mapping[str, object], rules: Rules, least: int, most: int | None) -> str:
    source = schema["pattern"]
    if not isinstance(source, str):
        raise StringError(f"pattern {source!r} is no text")
    if "format" in schema:
        raise StringError("pattern and format cannot both be kept: leave one of them out")
    try:
        pattern = Pattern(source, rules)
    except PatternError as error:
        raise StringError(f"pattern {source!r} has {error}, which a grammar cannot keep") from None
    shortest, longest = pattern.lengths
    if shortest < least or (most is not None and (longest is None or longest > most)):
        raise StringError(
            f"pattern {source!r} allows other lengths than minLength and maxLength: say the length in the pattern"
        )
    return _in_quotes(f"({pattern.body})")


def _of_format(schema: Mapping[str, object], least: int, most: int | None) -> str:
    name = schema["format"]
    if not isinstance(name, str) or name not in FORMATS:
        known = ", ".join(FORMATS)
        raise StringError(f"format {name!r} cannot be kept: known are {known}")
    shortest, longest = _FORMAT_LENGTHS.get(name, (1, None))
    if shortest < least or (most is not None and (longest is None or longest > most)):
        raise StringError(f"format {name} beside minLength or maxLength cannot be kept")
    return _in_quotes(f"({FORMATS[name]})")


def _in_quotes(body: str) -> str:
    return f'"\\"" {body} "\\""'


def _length(schema: Mapping[str, object], keyword: str) -> int | None:
    value = schema.get(keyword)
    if value is None:
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or value < 0
        or value != int(value)
    ):
        raise StringError(f"{keyword} is {value!r}: it takes a whole number from 0 on")
    if value > _MOST:
        raise StringError(f"{keyword} is {value!r}: a grammar counts up to {_MOST}")
    return int(value)
