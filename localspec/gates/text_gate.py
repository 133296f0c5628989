"""TextGate: one text goes through rules as it comes. What is found, and what is let through, does not depend on how the text was cut.

At every place the first rule with a match counts, with its longest; the first place first. A text is held back from where a match may have begun
to where that is decided, which is no more than the longest possible match and one unit (see `escapes`), and what takes no place.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from localspec.gates.escapes import Reading, open_end, readings
from localspec.gates.patterns import MAX_MATCH, PLAIN, QUIET, Compiled, RuleSet

Action = Literal["mask", "ask", "stop", "note"]
"""What is done about a match: put a note in its place; the same until the user says that it may be seen; the same, and end the answer there; let it through and count it."""
_CONTEXT, _MAX_PLAIN = 24, 64
_MAX_HELD = 2 * MAX_MATCH  # of a text of escapes, or of invisible characters
_NO_JSON = str.maketrans({'"': "'", "\\": "/"} | {chr(code): " " for code in range(32)})


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


class Finding(NamedTuple):
    """A match of an `ask` rule: its name, and the text, which is never to be written anywhere."""

    rule: str
    text: str


class _Match(NamedTuple):
    """A match: its rule, where its head ends, and where it ends."""

    rule: Compiled
    head: int
    end: int


def mask_of(rule: str) -> str:
    """Return what is seen in the place of what a rule found; it may stand in a string of JSON."""
    return f"[masked: {rule.translate(_NO_JSON)}]"


class TextGate:
    """Reads one text, and lets through what may be seen.

    Args:
        rules: what it looks for.
        actions: what is done about what each of them finds, by their names.

    Attributes:
        counts: how often each rule found something, and what was done about it.
        findings: what `ask` rules have masked, in order; kept in memory alone.
        stopped: whether a rule ended the text; what comes then is not let through.
    """

    def __init__(self, rules: RuleSet, actions: Mapping[str, Action]) -> None:
        self._rules, self._actions = rules, actions
        self.counts: Counter[tuple[str, str]] = Counter()
        self.findings: list[Finding] = []
        self.stopped = False
        self._held = ""
        self._before = "", ""  # a little of what was decided, in both readings
        self._passed: list[Stretch] = []
        self._at = 0  # what stands before it in `_held` is decided
        self._readings: list[Reading] = []
        self._places: dict[tuple[RuleSet, str, int], int] = {}
        # Of the match that has just ended, as long as its tail may go on:
        self._tail: Compiled | None = None
        self._tail_passes = False

    @property
    def held(self) -> int:
        """How many characters are held back."""
        return len(self._held)

    def feed(self, text: str) -> list[Stretch]:
        """Take more of the text; return what is decided now."""
        self._held += text
        if (passed := self._words()) is not None:
            return passed
        return self._decided(open_end(self._held), end=False, cut=False)

    def _words(self) -> list[Stretch] | None:
        """Return what is decided of a text of plain words, as most are; None where it may be more than that."""
        held, (meaning, written) = self._held, self._before
        if (
            self._tail
            or self.stopped
            or meaning != written
            or written[-1:] not in QUIET
            or len(held) > _MAX_PLAIN
            or not self._rules.words_pass
            or not (plain := PLAIN.fullmatch(held))
        ):
            return None
        at = plain.start("open")
        self._held, written = held[at:], (written + held[:at])[-_CONTEXT:]
        self._before = written, written
        return [Stretch(held[:at], at)] if at else []

    def flush(self, *, cut: bool = False) -> list[Stretch]:
        """Return the rest, at the end of the text.

        Args:
            cut: it ends in the middle: what has begun like a match, its head behind it, is one.
        """
        passed = self._decided(open_end(self._held), end=True, cut=cut)
        rest, self._held = self._held, ""
        if rest:
            hidden = self.stopped or (cut and bool(passed) and passed[-1].hidden)
            passed.append(Stretch("" if hidden else rest, len(rest), hidden))
        return passed

    def _decided(self, size: int, *, end: bool, cut: bool) -> list[Stretch]:
        """Decide what can be of so many characters."""
        self._readings = readings(self._held[:size], self._before)
        self._places.clear()
        waits = False
        while self._at < size and not waits:
            if self.stopped:
                self._hide("", size)
            elif self._tail is None:
                waits = self._seek(size, end=end, cut=cut)
            else:
                waits = self._take_tail(self._tail, size, end=end, cut=cut)
        before = [each.text_before(self._at, _CONTEXT) for each in self._readings]
        self._before = before[0], before[-1]
        self._held, self._at = self._held[self._at :], 0
        passed, self._passed = self._passed, []
        return passed

    def _seek(self, size: int, *, end: bool, cut: bool) -> bool:
        """Let through what is before the next match, and deal with that; return whether more must be known."""
        at, rules = self._at, self._rules
        while at < size:
            open_at, place = self._next(rules, at, size, end=end, cut=cut)
            if place == size:
                break
            if place == open_at and not end and size - place <= _MAX_HELD:
                self._show(place)
                return True
            if match := self._best(rules, place, cut=cut):
                self._show(place)
                if match.rule.is_guess:
                    return self._deal_with_guess(match, place, size, end=end, cut=cut)
                self._deal_with(match)
                return False
            at = self._readings[-1].behind(place)
        self._show(size)
        return False

    def _deal_with_guess(
        self, match: _Match, place: int, size: int, *, end: bool, cut: bool
    ) -> bool:
        """Deal with a match that is a guess: a rule that names what begins in it counts first; return whether more must be known.

        What stands before that is dealt with on its own.
        """
        named, behind = self._rules.named, self._readings[-1].behind(place)
        if not end:
            open_at = self._first(named, "begins", behind, size)
            if open_at < match.end and size - place <= _MAX_HELD:
                return True
        inner = self._named_in(match, behind, cut=cut)
        if inner is None:
            self._deal_with(match)
            return False
        begin, its = inner
        if before := self._match_up_to(match, place, begin):
            self._deal_with(before)  # and the named one stands behind it, as in a tail
            return False
        self._show(begin)
        self._deal_with(its)
        return False

    def _named_in(self, match: _Match, behind: int, *, cut: bool) -> tuple[int, _Match] | None:
        """Return where in a guess the first match of a named rule begins, and that match; of one that is cut, only where it goes beyond."""
        named = self._rules.named
        for which in ("matches", "begins") if cut else ("matches",):
            at = behind
            while (at := self._first(named, which, at, match.end)) < match.end:
                its = self._best(named, at, cut=which == "begins")
                if its and (its.end > match.end or (which == "matches" and match.rule.is_text)):
                    return at, its
                at = self._readings[-1].behind(at)
        return None

    def _match_up_to(self, match: _Match, place: int, end: int) -> _Match | None:
        """Return the match of the same rule at a place in what stands before an end."""
        for each in self._readings:
            size = each.place(end)
            part = Reading(each.text[:size], each.starts[: size + 1], each.ends[:size])
            if its := _match(match.rule, part, each.place(place), cut=False):
                return its
        return None

    def _next(self, rules: RuleSet, at: int, size: int, *, end: bool, cut: bool) -> tuple[int, int]:
        """Return where from a place on a rule may have begun to match, and where it does or may; `size` where none does."""
        open_at = self._first(rules, "begins", at, size) if cut or not end else size
        return open_at, self._first(rules, "matches", at, open_at) if open_at > at else at

    def _first(self, rules: RuleSet, which: Literal["matches", "begins"], at: int, end: int) -> int:
        """Return where from a place on a rule matches first, or may have begun to, before an end; that end where none does."""
        for number, each in enumerate(self._readings):
            place = self._places.get((rules, which, number), -1)
            if place < at:
                start, text = each.place(at), each.text
                if which == "begins":
                    match = rules.begins(text).search(text, max(start, len(text) - MAX_MATCH), partial=True)  # fmt: skip
                else:
                    match = rules.matches(text).search(text, start)
                place = each.starts[match.start() if match else -1]
                self._places[rules, which, number] = place
            end = min(end, place)
        return end

    def _best(self, rules: RuleSet, at: int, *, cut: bool) -> _Match | None:
        """Return the match at a place of the first rule that has one."""
        for rule in rules.rules:
            for each in self._readings:
                place = first = each.place(at)
                while place < len(each.text) and each.starts[place] == at:
                    if place == first or rule.begins_in_escape:
                        match = _match(rule, each, place, cut=cut)
                        if match:
                            return match
                    place += 1
        return None

    def _deal_with(self, match: _Match) -> None:
        """Mask a match, or let it through."""
        rule = match.rule.rule
        action = self._actions[rule.name]
        self.counts[rule.name, action] += 1
        self._tail, self._tail_passes = match.rule, action == "note"
        if self._tail_passes:
            self._show(match.end)
            return
        if action == "ask":
            self.findings.append(Finding(rule.name, self._held[self._at : match.end]))
        if rule.shows_head:
            self._show(match.head)
        self._hide(mask_of(rule.name), match.end)
        self.stopped = action == "stop"

    def _take_tail(self, rule: Compiled, size: int, *, end: bool, cut: bool) -> bool:
        """Take what belongs to the last match, up to where that ends, or another match may begin; return whether more must be known."""
        meaning, named = self._readings[0], self._rules.named
        take = self._show if self._tail_passes else partial(self._hide, "")
        tail = rule.tail.match(meaning.text, meaning.place(self._at))
        assert tail  # noqa: S101 - it may be empty
        stop = meaning.starts[tail.end()]
        ended = bool(rule.rule.end) and meaning.text.endswith(rule.rule.end, 0, tail.end())
        waits = not ended and "." in rule.rule.tail and meaning.text[tail.end() :] == "."
        if waits and cut:  # else it may end a sentence
            stop, waits = size, False
        open_at, place = self._next(named, self._at, size, end=end, cut=cut)
        if place < size and (place < stop or (place == stop and not ended)):
            take(place)
            if place == open_at and not end and size - place <= _MAX_HELD:
                return True
            match = self._best(named, place, cut=cut)
            if match and (self._tail_passes or match.end > stop):
                self._deal_with(match)
            elif place == stop:
                self._tail = None
            else:
                take(self._readings[-1].behind(place))
            return False
        take(stop)
        if stop < size and not (waits and not end):
            self._tail = None
        return waits and not end

    def _show(self, end: int) -> None:
        if end > self._at:
            self._passed.append(Stretch(self._held[self._at : end], end - self._at))
            self._at = end

    def _hide(self, instead: str, end: int) -> None:
        if end > self._at:
            taken, self._at = end - self._at, end
            if not instead and self._passed and self._passed[-1].hidden:
                last = self._passed.pop()
                instead, taken = last.text, last.taken + taken
            self._passed.append(Stretch(instead, taken, hidden=True))


def _match(rule: Compiled, of: Reading, place: int, *, cut: bool) -> _Match | None:
    """Return the match of a rule at a place; at the end of a text that was cut one that has begun is one, too."""
    most, begun = place + MAX_MATCH, None
    if cut and len(of.text) <= most:
        begun = rule.begins.match(of.text, place, partial=True)
        begun = begun if begun and begun.end() > begun.end("head") >= place else None
    match = begun or rule.matches.match(of.text, place, most)
    if match is None:
        return None
    middle, end, its = match.end("head"), match.end(), rule.rule
    enough = begun and its.telling and end - middle >= its.telling
    if its.check and not its.check(of.text[place:middle], of.text[middle:end]) and not enough:
        return None
    head = of.ends[middle - 1] if middle > place else of.starts[place]
    return _Match(rule, head, of.ends[end - 1])
