"""TextGate: one text goes through rules as it comes. What is found, and what is let through, does not depend on how the text was cut.

At every place the first rule with a match counts, with its longest; the first place first. A text is held back from where a match may have begun
to where that is decided, which is no more than the longest possible match and one unit (see `escapes`), and what takes no place.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from localspec.gates.automaton import Compiled, RuleSet, State
from localspec.gates.escapes import readings, units_of

Action = Literal["mask", "ask", "stop", "note"]
ACTIONS: Mapping[Action, str] = {
    "mask": "put a note in its place",
    "ask": "put a note in its place, until somebody says that it may be seen",
    "stop": "put a note in its place, and end the answer there",
    "note": "let it through, and count it",
}


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of a text that was decided.

    Args:
        text: what may be seen of it.
        taken: how many characters of the text it stands for.
        hidden: whether something else is seen than was there.
    """

    text: str
    taken: int
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found.

    Args:
        rule: its name.
        action: what is done about it.
        text: what was found; never to be written anywhere.
    """

    rule: str
    action: Action
    text: str


_STOP = "."
_MOST_IGNORED = 256
_NO_JSON = str.maketrans({'"': "'", "\\": "/"} | {chr(code): " " for code in range(32)})


def mask_of(rule: str) -> str:
    """Return what is seen in the place of what a rule found; it may stand in a string of JSON."""
    return f"[masked: {rule.translate(_NO_JSON)}]"


class TextGate:
    """Reads one text, and lets through what may be seen.

    Args:
        automaton: of the rules.
        actions: what is done about what each of them finds, by their names.
        allows: says of what an `ask` rule found whether it may be seen; None lets nothing through.

    Attributes:
        counts: how often each rule found something, and what was done about it.
        asked: what `ask` rules have masked, in order; kept in memory alone.
        stopped: whether a rule ended the text; what comes then is not let through.
    """

    def __init__(
        self,
        automaton: RuleSet,
        actions: Mapping[str, Action],
        allows: Callable[[Finding], bool] | None = None,
    ) -> None:
        self._automaton, self._actions, self._allows = automaton, actions, allows
        self.counts: Counter[tuple[str, str]] = Counter()
        self.asked: list[Finding] = []
        self.stopped = False
        self._held: list[str] = []  # units
        self._open = ""  # the end of the text, which may still become a unit
        self._at = 0  # what stands before it in `_held` is decided
        self._plain = 0  # so many units of that are let through as they are, and not handed out yet
        self._before = ""
        self._passed: list[Stretch] = []
        # Of the match that may have begun there:
        self._state: State | None = None
        self._read = self._ignored = 0
        self._longest: dict[Compiled, int] = {}
        self._cut: tuple[Compiled, ...] = ()
        # Of the one that has just ended, as long as its tail may go on:
        self._tail: Compiled | None = None
        self._tail_is_seen = False
        self._tail_end = ""

    @property
    def held(self) -> int:
        """How many characters are held back."""
        return sum(map(len, self._held)) + len(self._open)

    def feed(self, text: str) -> list[Stretch]:
        """Take more of the text; return what is decided now."""
        units, self._open = units_of(self._open + text)
        self._held += units
        return self._decided(end=False, cut=False)

    def flush(self, *, cut: bool = False) -> list[Stretch]:
        """Return the rest, at the end of the text.

        Args:
            cut: it ends in the middle: what has begun like a match, its head behind it, is one.
        """
        passed = self._decided(end=True, cut=cut)
        rest, self._open = self._open, ""
        if rest:
            hidden = self.stopped or (cut and bool(passed) and passed[-1].hidden)
            passed.append(Stretch("" if hidden else rest, len(rest), hidden))
            self._before = rest[-1]
        return passed

    def _decided(self, *, end: bool, cut: bool) -> list[Stretch]:
        size = len(self._held)
        while self._at < size:
            if self.stopped:
                self._hide("", size - self._at)
            elif self._state is not None:
                if not self._match(end=end, cut=cut):
                    break
                self._settle()
            elif self._tail is None:
                self._seek()
            elif not self._take_tail(self._tail, end=end, cut=cut):
                break
        self._hand_out()
        self._held, self._at = self._held[self._at :], 0
        passed, self._passed = self._passed, []
        return passed

    def _seek(self) -> None:
        """Let through what no match begins in."""
        held, before, automaton = self._held, self._before, self._automaton
        at, size = self._at, len(held)
        while at < size:
            unit = held[at]
            start = automaton.start(before)
            state = start.next.get(unit) or automaton.step(start, unit)
            if state.wanted or state.accepts:
                self._begin(state)
                break
            before, at = unit, at + 1
        self._show(at - self._at)

    def _begin(self, state: State) -> None:
        self._state, self._read, self._ignored = state, 1, 0

    def _match(self, *, end: bool, cut: bool) -> bool:
        """Read on from where a match may have begun; return whether all is read that can belong to it."""
        held, state, read = self._held, self._state, self._at + self._read
        size, automaton = len(held), self._automaton
        assert state is not None  # noqa: S101 - it has begun
        while True:
            if read == size and not end and (state.wanted or state.looks_ahead):
                self._state, self._read = state, read - self._at
                return False
            for rule in state.accepts:
                if rule.after is None or read == size or rule.may_end_before(held[read]):
                    self._longest[rule] = read - self._at
            if read == size or not state.wanted or self._ignored > _MOST_IGNORED:
                break
            unit = held[read]
            state = state.next.get(unit) or automaton.step(state, unit)
            if len(unit) > 1 or unit > "~":
                self._ignored += not readings(unit)[0]
            read += 1
        if cut and read == size:
            self._longest |= dict.fromkeys(state.begun, size - self._at)
            self._cut = state.begun
        return True

    def _settle(self) -> None:
        """Deal with what was read: a match, or a character that none begins with."""
        found = self._best() if self._longest else None
        self._state = None
        if self._tail is not None and self._is_in_tail(
            self._tail, 1 if found is None else found[1]
        ):
            self._tail_end += self._held[self._at]
            self._pass_tail(1)
            return
        if found is None:
            if self._tail is None:
                self._show(1)
            self._tail = None
            return
        rule, size, head = found
        action, name = self._actions[rule.rule.name], rule.rule.name
        finding = Finding(name, action, "".join(self._held[self._at : self._at + size]))
        seen = action == "note" or (
            action == "ask" and self._allows is not None and self._allows(finding)
        )
        self.counts[name, action] += 1
        self._tail = rule
        self._tail_is_seen, self._tail_end = seen, finding.text
        if seen:
            self._show(size)
            return
        if action == "ask":
            self.asked.append(finding)
        shown = head if rule.rule.shows_head else 0
        self._show(shown)
        self._hide(mask_of(name), size - shown)
        self.stopped = action == "stop"

    def _best(self) -> tuple[Compiled, int, int] | None:
        """Return the match of the first rule that has one: the rule, its units, and those of its head."""
        longest, self._longest = self._longest, {}
        cut, self._cut = self._cut, ()
        for rule, size in sorted(longest.items(), key=lambda each: each[0].number):
            its = rule.rule
            if its.check is None and not its.shows_head:
                return rule, size, 0
            for spelled in _spellings(self._held[self._at : self._at + size]):
                text = "".join(spelled)
                if not rule.reads(text):
                    continue
                head = rule.head_chars(text)
                if its.check is None or its.check(text[:head], text[head:]):
                    return rule, size, _units_in(spelled, head)
                if rule in cut and its.telling and len(text) - head >= its.telling:
                    return rule, size, _units_in(spelled, head)
        return None

    def _take_tail(self, rule: Compiled, *, end: bool, cut: bool) -> bool:
        """Take what belongs to the last match, up to where that ends, or another match may begin; return whether all of it is known that is held."""
        held, at, known = self._held, self._at, True
        while at < len(held):
            unit, state = held[at], self._automaton.step(self._automaton.joined, held[at])
            ended = rule.rule.end and self._tail_end.endswith(rule.rule.end)
            if state.wanted and not ended:
                self._pass_tail(at - self._at)
                self._begin(state)
                return True
            if ended or not rule.has_in_tail(unit):
                self._tail = None
                break
            if unit == _STOP and at + 1 == len(held) and not end:
                known = False  # it may end a sentence
                break
            if unit == _STOP and not cut and not any(map(rule.has_in_tail, held[at + 1 : at + 2])):
                self._tail = None
                break
            self._tail_end = self._tail_end[-len(rule.rule.end) :] + unit if rule.rule.end else ""
            at += 1
        self._pass_tail(at - self._at)
        return known

    def _is_in_tail(self, rule: Compiled, size: int) -> bool:
        """Return whether so many units belong to the tail, and need no note of their own."""
        units = self._held[self._at : self._at + size]
        return (size == 1 or not self._tail_is_seen) and all(map(rule.has_in_tail, units))

    def _pass_tail(self, size: int) -> None:
        if self._tail_is_seen:
            self._show(size)
        else:
            self._hide("", size)

    def _show(self, size: int) -> None:
        if size:
            self._at += size
            self._plain += size
            self._before = self._held[self._at - 1]

    def _hide(self, instead: str, size: int) -> None:
        if size:
            self._hand_out()
            self._at += size
            self._before = self._held[self._at - 1]
            taken = sum(map(len, self._held[self._at - size : self._at]))
            if not instead and self._passed and self._passed[-1].hidden:
                last = self._passed.pop()
                instead, taken = last.text, last.taken + taken
            self._passed.append(Stretch(instead, taken, hidden=True))

    def _hand_out(self) -> None:
        """Hand out what is let through as it is."""
        if self._plain:
            text = "".join(self._held[self._at - self._plain : self._at])
            self._passed.append(Stretch(text, len(text)))
            self._plain = 0


def _spellings(units: list[str]) -> Iterator[list[str]]:
    """Yield how units may be spelled: what they mean, as they are written, and so that a letter behind a backslash begins them."""
    meant = [readings(each)[0] for each in units]
    yield meant
    if meant != units:
        yield units
        yield [units[0][-1], *meant[1:]]


def _units_in(spelled: Sequence[str], size: int) -> int:
    """Return how many units stand in so many characters of a text."""
    ends = accumulate(map(len, spelled))
    return sum(end <= size for end in ends)
