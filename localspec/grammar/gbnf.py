r"""GBNF, llama.cpp's grammars, as Lark, which llguidance reads. The rules are converted by its own `gbnf_to_lark`.

That converter takes over names and characters as they are written, but GBNF and Lark write some of them differently;
so they are rewritten first. What comes of it allows exactly the texts of the grammar. One without recursion becomes a
single regular expression. One with recursion is read character by character: terminals of several characters would
be read greedily, so that in llama.cpp's own example `term "\n"`, where a term ends in white space, no line would ever
end. That takes some milliseconds for each mask within a string.
"""

import re
from collections.abc import Callable, Iterator

from localspec.display import printable_line
from localspec.errors import UsageError

_TOKEN = re.compile(
    r'(?P<comment>#[^\r\n]*)|"(?P<text>(?:\\.|[^"\\\r\n])*)"|\[(?P<class>\^?(?:\\.|[^\]\\\r\n])*)\]|(?P<any>\.)'
    r"|(?P<name>[A-Za-z0-9_-]+)(?P<rule>\s*::=)?|(?P<count>\{[\s\d,]*\})|(?P<space>\s+)|(?P<other>.)",
    re.DOTALL,
)
_CHARACTER = re.compile(
    r'\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([tnr])|(["\\\[\]-]))|([^\\])|(\\)',
    re.DOTALL,
)
_COUNT = re.compile(r"\{\s*(\d{1,6})\s*(?:(,)\s*(\d{1,6})?\s*)?\}")
_NAMED = {"t": "\t", "n": "\n", "r": "\r"}
_ROOT = "root"
_OPERATORS = frozenset("()|*+?")
_REPEATS = frozenset("*+?")
_LAST = 0x10FFFF
_TERMINAL = re.compile("[A-Z][A-Z0-9_]*")
_Error = Callable[[str], UsageError]


def lark_of_gbnf(gbnf: str) -> str:
    """Return a grammar in Lark.

    Raises:
        UsageError: it is no GBNF, with the place, or refers to tokens instead of text.
    """
    # ruff: noqa: PLC0415 - it comes with llguidance, which most runs do not need
    from llguidance.gbnf_to_lark import GbnfToLarkError, gbnf_to_lark

    _require_shape(gbnf)
    plain = "".join(_rewritten(gbnf))
    try:
        lark: str = gbnf_to_lark(plain)
    except GbnfToLarkError as error:
        raise UsageError(f"the grammar is wrong: {_shown(str(error))}") from None
    except RecursionError:
        raise UsageError("the grammar is wrong: it is nested too deeply") from None
    if f"start: {_renamed(_ROOT).upper()}\n" in lark:
        return lark
    return _TERMINAL.sub(lambda name: name[0].lower(), lark)


def _rewritten(gbnf: str) -> Iterator[str]:
    """Yield a grammar with the same rules, in other names; each character of a text stands alone, none is upper-case."""
    names: set[str] = set()
    for match in _TOKEN.finditer(gbnf):
        if match["rule"] and match["name"] in names:
            raise _error_at(gbnf, match.start())(f"the rule {match['name']} is defined twice")
        names |= {match["name"]} if match["rule"] else set()
    if _ROOT not in names:
        raise UsageError("the grammar is wrong: it has no rule root")
    # Only what is referred to can become a terminal.
    yield f"{_ROOT} ::= {_renamed(_ROOT)}"
    for match in _TOKEN.finditer(gbnf):
        error = _error_at(gbnf, match.start())
        if match["rule"]:
            yield f"\n{_renamed(match['name'])} ::="
        elif match["name"]:
            if match["name"] not in names:
                raise error(f"there is no rule {match['name']}")
            yield f" {_renamed(match['name'])}"
        else:
            yield _rewritten_token(match, error)


def _rewritten_token(match: re.Match[str], error: _Error) -> str:
    """Return what is neither a rule nor a reference to one."""
    if match["text"] is not None:
        # The empty text keeps what a group repeats from being taken for a lone item, whose operators would clash.
        characters = " ".join(f'"{_written(code)}"' for code in _codes(match["text"], error))
        return f' ("" {characters})'
    if match["class"] is not None:
        return f" {_class(match['class'], error)}"
    if match["any"]:
        return f" [\\x00-{chr(_LAST)}]"
    if match["count"]:
        return _count(match["count"], error)
    other = match["other"] or ""
    if other and other not in _OPERATORS:
        raise error(f"{other!r} is not supported in a grammar of text")
    return '(""' if other == "(" else other


def _require_shape(gbnf: str) -> None:
    """Refuse groups that are not closed, and repetitions of nothing."""
    opened: list[int] = []
    before = ""
    for match in _TOKEN.finditer(gbnf):
        if match["comment"] is not None or match["space"]:
            continue
        error = _error_at(gbnf, match.start())
        sign = "=" if match["rule"] else match["other"] or ("*" if match["count"] else "a")
        if sign in _REPEATS and (before in _REPEATS or before in {"", "=", "(", "|"}):
            raise error(f"{match[0]} stands behind nothing to be repeated")
        if sign == "=" and opened:
            break
        if sign == "(":
            opened.append(match.start())
        elif sign == ")":
            if not opened:
                raise error("')' closes nothing")
            opened.pop()
        before = sign
    if opened:
        raise _error_at(gbnf, opened[-1])("'(' is never closed")


def _error_at(gbnf: str, at: int) -> _Error:
    """Return what makes the error about a place in a grammar."""

    def error(what: str) -> UsageError:
        line, column = gbnf.count("\n", 0, at) + 1, at - gbnf.rfind("\n", 0, at)
        return UsageError(f"the grammar is wrong in line {line}, column {column}: {_shown(what)}")

    return error


def _renamed(name: str) -> str:
    """Return a name of lower-case letters, digits and underlines; different ones stay different."""
    return "r" + "".join(
        each if each.isdigit() or each.islower() else f"_{ord(each):x}_" for each in name
    )


def _count(source: str, error: _Error) -> str:
    found = _COUNT.fullmatch(source)
    if found is None:
        raise error(f"{source} is not a count: write {{2}}, {{2,}} or {{2,5}}")
    least, comma, most = found.groups()
    if most is not None and int(least) > int(most):
        raise error(f"{source} is not a count: put the smaller number first")
    return f"{{{least}{comma or ''}{most or ''}}}"


def _class(source: str, error: _Error) -> str:
    """Return a class of characters."""
    negated = source.startswith("^")
    found: list[str] = []
    codes = _codes(source[negated:], error, hyphen=-1)
    while codes:
        ranged = len(codes) > 2 and codes[1] == -1
        low, high = (ord("-") if code == -1 else code for code in (codes[0], codes[2 * ranged]))
        del codes[: 3 if ranged else 1]
        if low > high:
            raise error(f"{chr(low)!r}-{chr(high)!r} is not a range")
        found.append(f"{_written(low)}-{_written(high)}")
    if not found:
        raise error("a class needs a character")
    return f"[{'^' * negated}{''.join(found)}]"


def _codes(source: str, error: _Error, hyphen: int = ord("-")) -> list[int]:
    """Return the characters of a text or a class; a hyphen without a backslash may stand for a range."""
    found = []
    for two, four, eight, named, itself, plain, wrong in _CHARACTER.findall(source):
        code = int(two or four or eight or "0", 16)
        if wrong or code > _LAST or 0xD800 <= code < 0xE000:
            raise error(r"unknown escape: use \n \r \t \x41 \u0041 \U00000041")
        if two or four or eight:
            found.append(code)
        else:
            found.append(hyphen if plain == "-" else ord(_NAMED.get(named, "") or itself or plain))
    return found


def _written(code: int) -> str:
    """Return a character as GBNF, Lark and regular expressions write it."""
    plain = code > 0x9F or chr(code) in "0123456789abcdefghijklmnopqrstuvwxyz"
    return chr(code) if plain else f"\\x{code:02x}"


def _shown(text: str) -> str:
    return printable_line(text)[:200]
