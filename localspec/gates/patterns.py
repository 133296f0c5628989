r"""Rules as expressions of the `regex` package, whose partial matches tell from where on a text may still become a match.

A pattern of one's own has literals, `.`, classes, `\d \w \s`, groups, `|`, and the quantifiers `?`, `{n}` and `{m,n}`; `(?i)` at the beginning ignores
case. `*`, `+` and `{m,}` are refused, since they have no longest match.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import regex

from localspec.errors import UsageError
from localspec.gates.rules import OWN, RULES, GateRule

MAX_MATCH = 2048
"""Characters that a match has at most, tails aside."""
QUIET = " \t\r\n,;!?()[]{}<>*|&~$'\"`="
"""Characters between which words stand alone."""
_QUIET, _RUN, _OPEN = rf"[{re.escape(QUIET)}]", "[A-Za-z0-9_.-]{1,19}", r"(?<![A-Za-z0-9_.-])\(\Z"
_TELLING = r"(?i:pass|pwd|secret|key|token|xox)|[A-Z]{2}[0-9]{2}|[0-9]{3}|0[0-9]|\([0-9]|-----"
PLAIN = re.compile(
    rf"(?!.*(?:{_TELLING}))(?:{_RUN}:?(?!=)(?={_QUIET})|(?!{_OPEN}){_QUIET})*(?P<open>{_RUN}|{_OPEN}|)",
    re.DOTALL,
)
"""Words in which none of localspec's rules matches: no other key has less than 20 characters; and `open`, which may still become an address or a number."""
_LETTERS = "A-Za-z0-9"
_HEX = "[0-9A-Fa-f]"
# What a letter or a digit ends that is no word: percent escapes, numbers of characters, escapes of code. Each has one length: with
# others, `regex` finds partial matches that are none.
_ENDS = (
    *(f"%{'25' * twice}{_HEX * 2}" for twice in range(3)), f"%u{_HEX * 4}", "=[0-9A-F][0-9A-F]",
    r"\\[0-7]", r"\\[0-7][0-7]", r"\\[0-7][0-7][0-7]", r"\\[A-Za-z]",
)  # fmt: skip
_BEHIND_NO_WORD = rf"(?:(?<![{_LETTERS}])|{'|'.join(f'(?<={each})' for each in _ENDS)})"
"""No letter or digit stands before, or one that ends something else than a word."""
_ESCAPES = regex.compile(r"[%\\]|=[0-9A-F][0-9A-F]")
_FIRST = regex.compile(r"(?:\(\?i\))?(?:\(\?=)?(\[[^]]+\]|[A-Za-z-])(?!\?|\{0)")
"""What a head begins with."""
_PARTS = regex.compile(
    r"(?P<escape>\\[^0-9A-Za-z]|\\[dwsDWSntr])|(?P<class>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<group>\((?:\?:)?(?!\?)|\)|\|)"
    r"|(?P<count>\?|\{(?P<most>\d+)\}|\{\d+,(?P<upto>\d+)\})[?+]?(?![?+*])|(?P<endless>[*+]|\{\d+,\})|(?P<plain>[^\\\[({*+?])"
)


@dataclass(frozen=True, eq=False)
class Compiled:
    """A rule and its expressions, which are made when they are needed: that takes a millisecond each."""

    rule: GateRule

    @cached_property
    def matches(self) -> regex.Pattern[str]:
        """A match, with its head as a group; of alternatives in a user's own pattern the longest counts."""
        flags = regex.POSIX if self.rule.group == OWN else 0
        return regex.compile(_expressions(self.rule)[0], flags)

    @cached_property
    def begins(self) -> regex.Pattern[str]:
        """The same, but never complete: all that it finds are partial matches."""
        return regex.compile(_expressions(self.rule)[1])

    @cached_property
    def tail(self) -> regex.Pattern[str]:
        """Characters behind a match that belong to it, as far as they go; none where the rule has no tail."""
        of = self.rule.tail
        one = rf"(?:\.(?=[{of}])|(?!\.)[{of}])" if "." in of else f"[{of}]"
        end = f"(?<!{self.rule.end})" if self.rule.end else ""
        return regex.compile(f"(?:{end}{one})*+" if of else "")

    @property
    def is_guess(self) -> bool:
        """Whether what it finds only looks like something, and begins anywhere."""
        return self.rule.check is not None and not self.rule.shows_head

    @property
    def is_text(self) -> bool:
        """Whether it has no form but that of its characters: another rule knows more."""
        return self.is_guess and bool(self.rule.tail)

    @property
    def begins_in_escape(self) -> bool:
        """Whether the letter of an escape may begin it: not where any letter can, since a line end is no part of an address."""
        rule = self.rule
        return (rule.check is None or rule.shows_head) and "\\" not in rule.before


def require_longest(pattern: str) -> None:
    """Check that a pattern of a user's own is well formed and has a longest match.

    Raises:
        UsageError: it has none, says what is not known here, or matches nothing at all.
    """
    at = 4 if pattern.startswith("(?i)") else 0
    while at < len(pattern):
        part = _PARTS.match(pattern, at)
        if part is None:
            raise _wrong(pattern, at, "it is not known here, or not closed")
        if part["endless"]:
            raise _wrong(pattern, at, f"{part[0]} has no longest match: write {{1,40}}, say")
        if int(part["most"] or part["upto"] or 1) > MAX_MATCH:
            raise _wrong(pattern, at, f"{part[0]} is no range up to {MAX_MATCH}")
        at = part.end()
    try:
        nothing = regex.fullmatch(pattern, "")
    except regex.error as error:
        raise _wrong(pattern, error.pos or 0, str(error)) from None
    if nothing:
        raise _wrong(pattern, 0, "it matches nothing at all: let it read something")


def _wrong(pattern: str, at: int, reason: str) -> UsageError:
    return UsageError(f"pattern {pattern[:60]!r} at {at + 1}: {reason}")


def _scoped(pattern: str) -> str:
    return f"(?i:{pattern[4:]})" if pattern.startswith("(?i)") else f"(?:{pattern})"


def _expressions(rule: GateRule) -> tuple[str, str]:
    before = f"(?<![{rule.before}])" if rule.before else ""
    if rule.is_named and rule.before == _LETTERS:
        before = _BEHIND_NO_WORD
    both = f"{before}(?P<head>{_scoped(rule.head)}){_scoped(rule.body)}"
    if not rule.after:
        return both, f"{both}(?!)"
    return f"{both}(?![{rule.after}])", f"{both}[^{rule.after}](?!)"


class RuleSet:
    """Rules, and where any of them matches.

    Args:
        rules: in the order in which they count.
    """

    def __init__(self, rules: Iterable[GateRule]) -> None:
        self.rules = tuple(map(Compiled, rules))

    @cached_property
    def named(self) -> "RuleSet":
        """Those whose beginning tells what they are, whatever stands before it: they match also directly behind another match."""
        rules = (each.rule for each in self.rules if each.rule.is_named)
        return RuleSet(replace(each, before="") for each in rules)

    @cached_property
    def words_pass(self) -> bool:
        """Whether plain words are no matches, and a word may become one, an e-mail address: see `PLAIN`."""
        rules = {each.rule for each in self.rules}
        return rules <= {*RULES} and any(each.group == "email" for each in rules)

    def matches(self, text: str) -> regex.Pattern[str]:
        """Return the expression of a match of any of them in a text."""
        return self._any[0, _ESCAPES.search(text) is not None]

    def begins(self, text: str) -> regex.Pattern[str]:
        """Return that of the beginning of a match of any of them, at the end of a text."""
        return self._any[1, _ESCAPES.search(text) is not None]

    @cached_property
    def _any(self) -> "_Expressions":
        return _Expressions(self.rules)


class _Expressions(dict[tuple[int, bool], regex.Pattern[str]]):
    """Expressions for all rules together, by what they find and whether a text has escapes: looking for those takes time."""

    def __init__(self, rules: Iterable[Compiled]) -> None:
        super().__init__()
        self._rules = tuple(rules)

    def __missing__(self, key: tuple[int, bool]) -> regex.Pattern[str]:
        which, has_escapes = key
        behind = _BEHIND_NO_WORD if has_escapes else f"(?<![{_LETTERS}])"
        self[key] = self._any(which, behind)
        return self[key]

    def _any(self, which: int, behind: str) -> regex.Pattern[str]:
        """Return one expression for all: those that begin words apart, and each by its first character, so that most are never tried."""
        groups: dict[bool, dict[str, list[str]]] = {True: {}, False: {}}
        for rule in (each.rule for each in self._rules):
            first = _FIRST.match(rule.head)
            group = groups[_LETTERS in rule.before]
            group.setdefault(first[1] if first else r"[\s\S]", []).append(_expressions(rule)[which])
        expressions = []
        for begins_word, of in groups.items():
            if of:
                guard = "".join(regex.sub(r"-$", r"\-", first.strip("[]")) for first in of)
                either = "|".join(f"(?={first})(?:{'|'.join(each)})" for first, each in of.items())
                expressions.append(f"(?=[{guard}]){behind * begins_word}(?:{either})")
        return regex.compile("|".join(expressions) or "(?!)")
