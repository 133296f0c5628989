"""RuleSet: all rules read at once, from one place of a text on. Its states are made as texts need them, and forgotten when there are many."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from localspec.gates.escapes import readings
from localspec.gates.patterns import CharClass, Positions, chars, concatenated, longest, positions
from localspec.gates.rules import GateRule

_MOST_STATES = 1 << 14
_MOST_NEXT = 256


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """A rule, read.

    Args:
        rule: what it is.
        number: where it stands among the others: of two matches in one place that of the lower number counts.
        head: its first part alone.
        body: its second part alone.
        whole: both.
        before: characters that do not stand before it.
        after: characters that do not stand behind it; None where any may.
        tail: characters behind it that belong to it; None where none does.
    """

    rule: GateRule
    number: int
    head: Positions
    body: Positions
    whole: Positions
    before: CharClass
    after: CharClass | None
    tail: CharClass | None

    def head_chars(self, text: str) -> int:
        """Return how many characters of a match are its head; the most that leave it a body."""
        ends = [0] if self.head.empty else []
        state = self.head.first
        for at, char in enumerate(text, 1):
            state = frozenset(each for each in state if char in self.head.classes[each])
            if state & self.head.last:
                ends.append(at)
            state = frozenset(after for each in state for after in self.head.follow[each])
        return next((end for end in reversed(ends) if self._is_body(text[end:])), 0)

    def reads(self, text: str) -> bool:
        """Return whether this is a match, or the beginning of one."""
        return _begins(self.whole, text)

    def may_end_before(self, unit: str) -> bool:
        """Return whether a match may end before a unit."""
        after = self.after
        return after is None or any(each[0] not in after for each in readings(unit) if each)

    def has_in_tail(self, unit: str) -> bool:
        """Return whether a unit behind a match belongs to it."""
        tail = self.tail
        return tail is not None and any(
            all(char in tail for char in each) for each in readings(unit)
        )

    def _is_body(self, text: str) -> bool:
        """Return whether this is a body, or the beginning of one."""
        return bool(text) and _begins(self.body, text)

    @property
    def is_named(self) -> bool:
        """Whether its beginning alone tells what it is, so that it counts also directly behind another match."""
        return bool(self.rule.head) and self.rule.check is None


def _begins(pattern: Positions, text: str) -> bool:
    """Return whether a match of a pattern begins with a text, or is it."""
    state = pattern.first
    for char in text:
        read = [each for each in state if char in pattern.classes[each]]
        if not read:
            return False
        state = frozenset(after for each in read for after in pattern.follow[each])
    return True


def compiled(rule: GateRule, number: int) -> Compiled:
    """Return a rule, read.

    Raises:
        UsageError: a pattern of it is not well formed, has no longest match, or matches nothing at all.
    """
    head, body = positions(rule.head), positions(rule.body)
    return Compiled(
        rule,
        number,
        head,
        body,
        concatenated(head, body),
        chars(rule.before) if rule.before else CharClass(()),
        chars(rule.after) if rule.after else None,
        chars(rule.tail) if rule.tail else None,
    )


@dataclass(slots=True, eq=False)
class State:
    """Where all rules stand after some units of a text; see `escapes`.

    Args:
        wanted: positions that may read the next character, those of all rules in one row; without any, no match goes on.
        read: positions that have read the last one; none where a match may begin.
        accepts: rules that may end here.
        begun: rules whose body has begun.
        looks_ahead: whether what comes next says if a rule ends here.
        next: states by the next unit, as far as they were asked for.
    """

    wanted: frozenset[int]
    read: frozenset[int] = frozenset()
    accepts: tuple[Compiled, ...] = ()
    begun: tuple[Compiled, ...] = ()
    looks_ahead: bool = False
    next: dict[str, "State"] = field(default_factory=dict)


class RuleSet:
    """Reads texts by rules.

    Args:
        rules: what it looks for.
    """

    def __init__(self, rules: Sequence[Compiled]) -> None:
        self.rules = tuple(rules)
        self._classes: list[CharClass] = []
        self._follow: list[frozenset[int]] = []
        self._last: dict[int, Compiled] = {}
        self._body: dict[int, Compiled] = {}
        self._first: list[frozenset[int]] = []
        for rule in self.rules:
            self._add(rule)
        self._states: dict[frozenset[int], State] = {}
        self._starts: dict[str, State] = {}
        self.joined = State(self._firsts(lambda each: each.is_named))
        # Of a backslash and a letter the letter may begin them. What may begin with any letter has the next one: a line end before it is not a part of it.
        self._behind_backslash = self._firsts(
            lambda each: (
                (each.rule.check is None or each.rule.shows_head) and "\\" not in each.before
            )
        )

    @property
    def longest(self) -> int:
        """How many units the longest possible match has, tails aside; one more is the most that is held back."""
        return max((longest(each.whole) for each in self.rules), default=0)

    def _add(self, rule: Compiled) -> None:
        shift, whole = len(self._classes), rule.whole
        self._classes += whole.classes
        self._follow += [frozenset(at + shift for at in each) for each in whole.follow]
        self._first.append(frozenset(at + shift for at in whole.first))
        self._last |= dict.fromkeys((at + shift for at in whole.last), rule)
        of_body = range(shift + len(rule.head.classes), len(self._classes))
        self._body |= dict.fromkeys(of_body, rule)

    def start(self, before: str) -> State:
        """Return where rules stand behind a unit, or at the beginning of a text, where it is empty."""
        found = self._starts.get(before)
        if found is None:
            last = [each[-1:] for each in readings(before)]
            firsts = self._firsts(lambda rule: any(each not in rule.before for each in last))
            if len(self._starts) >= _MOST_NEXT:
                self._starts.clear()
            found = self._starts[before] = State(firsts)
        return found

    def step(self, state: State, unit: str) -> State:
        """Return where rules stand after another unit."""
        found = state.next.get(unit)
        if found is None:
            found = self._behind(self._read(state, unit))
            if len(state.next) < _MOST_NEXT:
                state.next[unit] = found
        return found

    def _read(self, state: State, unit: str) -> frozenset[int]:
        """Return the positions that have read a unit, in any way that it may be read."""
        whole = set[int]()
        for reading in readings(unit):
            now = state
            for char in reading:
                now = self._behind(self._reading(now.wanted, char))
            whole |= now.read
        begins = not state.read and state is not self.joined
        if begins and len(unit) > 1 and unit[:-1] == "\\" * (len(unit) - 1):
            whole |= self._reading(self._behind_backslash, unit[-1])
        return frozenset(whole)

    def _reading(self, wanted: frozenset[int], char: str) -> frozenset[int]:
        return frozenset(at for at in wanted if char in self._classes[at])

    def _firsts(self, which: Callable[[Compiled], bool]) -> frozenset[int]:
        found = (each for rule, each in zip(self.rules, self._first, strict=True) if which(rule))
        return frozenset[int]().union(*found)

    def _behind(self, read: frozenset[int]) -> State:
        """Return the state behind positions that have read a character."""
        found = self._states.get(read)
        if found is None:
            if len(self._states) >= _MOST_STATES:
                self._states.clear()
            accepts = _rules(self._last, read)
            found = self._states[read] = State(
                frozenset[int]().union(*(self._follow[at] for at in read)),
                read,
                accepts,
                _rules(self._body, read),
                any(each.after is not None for each in accepts),
            )
        return found


def _rules(of: dict[int, Compiled], at: frozenset[int]) -> tuple[Compiled, ...]:
    return tuple(dict.fromkeys(of[each] for each in sorted(at) if each in of))
