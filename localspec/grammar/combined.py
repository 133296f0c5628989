"""Rules that are made of others: either of two, and those that begin where the text of an answer has spelled a trigger, or the beginning of a call."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.decoding.constraint import Automaton
from localspec.grammar.automaton import GrammarAutomaton, GrammarState

_LINE = b"\n"
_MOST_TEXTS = 256
_FEW_IDS = 4096


class Either:
    """Allows what one of some rules does, for as long as an answer follows it; see `Automaton`.

    A state has one of each rule, None of one that the answer has left.
    """

    def __init__(self, *rules: Automaton[Any]) -> None:
        self._rules = rules

    def start(self) -> tuple[Any, ...]:
        """Return the state before the first token."""
        return tuple(each.start() for each in self._rules)

    def step(self, state: tuple[Any, ...], token: int) -> tuple[Any, ...]:
        """Return the state after a token that `allows` lets follow."""
        one = np.array([token], dtype=np.int64)
        return tuple(
            None if each is None or not rule.allows(each, one)[0] else rule.step(each, token)
            for rule, each in zip(self._rules, state, strict=True)
        )

    def allows(self, state: tuple[Any, ...], ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Say for each of `ids`, shape (n,), whether it may follow."""
        allowed = np.zeros(ids.size, dtype=np.bool_)
        for rule, each in self._left(state):
            allowed |= rule.allows(each, ids)
        return allowed

    def forced(self, state: tuple[Any, ...]) -> tuple[int, ...]:
        """Return what is forced, once the answer follows one rule alone."""
        left = self._left(state)
        return left[0][0].forced(left[0][1]) if len(left) == 1 else ()

    def _left(self, state: tuple[Any, ...]) -> list[tuple[Automaton[Any], Any]]:
        return [each for each in zip(self._rules, state, strict=True) if each[1] is not None]


def _among(ids: NDArray[np.int64], tokens: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which ids are among some tokens, in order: what `np.isin` does, in a tenth of its time for a few ids."""
    if not tokens.size:
        return np.zeros(ids.size, dtype=np.bool_)
    if ids.size > _FEW_IDS:
        return np.isin(ids, tokens)
    found: NDArray[np.bool_] = tokens.take(tokens.searchsorted(ids), mode="clip") == ids
    return found


class Pieces:
    """The bytes of each token of a vocabulary, and which tokens have a text in them.

    Args:
        pieces: by id.
        control: bytes of those control tokens that texts may be made of, by id.
    """

    def __init__(self, pieces: Sequence[bytes], control: Mapping[int, bytes]) -> None:
        self._pieces = list(pieces)
        for token, piece in control.items():
            self._pieces[token] = piece
        self._joined = b"".join(self._pieces)
        self._begins = list(accumulate(map(len, self._pieces), initial=0))
        self._known: dict[tuple[bytes, bool], NDArray[np.int64]] = {}

    def __getitem__(self, token: int) -> bytes:
        return self._pieces[token]

    def with_text(self, text: bytes, *, at_start: bool = False) -> NDArray[np.int64]:
        """Return the tokens, in order, that a text stands in, or that begin with it."""
        known = self._known.get((text, at_start))
        if known is None:
            if len(self._known) == _MOST_TEXTS:
                self._known.clear()
            known = self._known[text, at_start] = np.array(
                list(self._find(text, at_start=at_start)), dtype=np.int64
            )
        return known

    def _find(self, text: bytes, *, at_start: bool) -> Iterator[int]:
        at, last = self._joined.find(text), -1
        while at >= 0:
            # The last of those that begin there: none is empty.
            token = bisect_right(self._begins, at) - 1
            begin, end = self._begins[token], self._begins[token + 1]
            fits = at + len(text) <= end and (at == begin or not at_start)
            if fits and token != last:
                yield token
                last = token
            at = self._joined.find(text, end if fits else at + 1)


class Trigger:
    """A text, and which tokens spell it; made once for all answers.

    Args:
        text: not empty.
        pieces: spell it.
    """

    def __init__(self, text: str, pieces: Pieces) -> None:
        self.text = text.encode()
        self.pieces = pieces
        self._past: dict[tuple[int, bool], NDArray[np.int64]] = {}

    def running_past(self, begun: int, *, or_to: bool) -> NDArray[np.int64]:
        """Return the tokens that run past its end, of which so many bytes are there already; `or_to`: or end with it."""
        if (begun, or_to) not in self._past:
            rest = self.text[begun:]
            size = len(rest) - or_to  # what may be spelled of it
            found = self.pieces.with_text(rest, at_start=begun > 0).tolist()
            ids = [
                token
                for token in found
                if self.pieces[token].find(rest) < len(self.pieces[token]) - size
            ]
            self._past[begun, or_to] = np.array(ids, dtype=np.int64)
        return self._past[begun, or_to]


class Opening:
    """A text behind which a call may begin.

    Args:
        text: of its beginning; empty where it begins a line.
        heads: texts of which one has to stand behind that: a name, and one of `tails`.
        tails: what stands behind names.
        rule: binds what stands behind the text.
    """

    def __init__(
        self, text: bytes, heads: Iterable[bytes], tails: Iterable[bytes], rule: GrammarAutomaton
    ) -> None:
        self.text = text or _LINE
        self.heads, self.tails = _shortest(heads), _shortest(tails)
        self.rule = rule
        self.begins_line = not text
        names = (len(h) - len(t) for h in self.heads for t in self.tails if h.endswith(t))
        self.least = min(names, default=0)

    def is_begun(self, behind: bytes) -> bool:
        """Return whether a head is, or may become, the beginning of a text."""
        at = bisect_left(self.heads, behind)
        may_become = at < len(self.heads) and self.heads[at].startswith(behind)
        return may_become or behind.startswith(self.heads)

    def stripped(self, behind: bytes) -> bytes:
        """Return what counts of a text behind it."""
        return behind.lstrip() if self.begins_line else behind


def _shortest(texts: Iterable[bytes]) -> tuple[bytes, ...]:
    """Return texts in order, without those that begin with another."""
    found = list[bytes]()
    for text in sorted(texts):
        if not (found and text.startswith(found[-1])):
            found.append(text)
    return tuple(found)


_FRESH = object()
"""The state of a rule that no text was given to."""
Met = tuple[bytes, Any]
"""Text behind an opening, and the state of its rule there; None where the text has left the rule."""


@dataclass(frozen=True, slots=True)
class WatchState:
    """Where a text is.

    Args:
        tail: its end.
        met: of each opening, what stands behind it; None where it does not stand there.
        bound: number of the opening whose call has begun, and the state of its rule.
    """

    tail: bytes
    met: tuple[Met | None, ...]
    bound: tuple[int, Any] | None = None


class Watch:
    """Leaves a text free until a call begins: an opening with a whole head behind it; see `Automaton`.

    Up to there the text may turn out to be none. A token that would complete a head otherwise than its rule has it may not follow.

    Args:
        openings: where calls may begin.
        pieces: spell them.
        tokenize: returns the ids of a text: of what a token has behind an opening that it completes (`=get`).
    """

    def __init__(
        self,
        openings: Sequence[Opening],
        pieces: Pieces,
        tokenize: Callable[[bytes], Sequence[int]],
    ) -> None:
        self._openings = openings
        self._tokenize = tokenize
        self._pieces = pieces
        self._longest = max((len(each.text) for each in openings), default=1)
        self._ends = tuple({each.text[-1:] for each in openings})
        # Whether a token has a whole tail, and so could complete a name and a head, or an opening and a head, at once.
        self._wide = [any(pieces.with_text(e).size for e in each.tails) for each in openings]
        self._past: dict[tuple[int, int], NDArray[np.int64]] = {}

    def start(self) -> WatchState:
        """Return the state before the first token, where a line begins."""
        met = ((b"", _FRESH) if each.begins_line else None for each in self._openings)
        return WatchState(_LINE, tuple(met))

    def step(self, state: WatchState, token: int) -> WatchState:
        """Return the state after a token that `allows` lets follow."""
        if state.bound is not None:
            number, bound = state.bound
            return replace(state, bound=(number, self._openings[number].rule.step(bound, token)))
        piece = self._pieces[token]
        tail = (state.tail + piece)[-self._longest :]
        if not any(state.met) and not any(each in piece for each in self._ends):
            return WatchState(tail, state.met)
        met = list[Met | None]()
        for number, (opening, before) in enumerate(zip(self._openings, state.met, strict=True)):
            after = None if before is None else self._followed(opening, before, token)
            after = after or self._begun(opening, state.tail + piece, len(piece))
            if after is None and before is not None:
                rest = before[0] + piece  # what turned out to be none may hold another opening
                after = self._begun(opening, rest, len(rest) + len(opening.text))
            if after is not None and after[0].startswith(opening.heads):
                return WatchState(b"", (), (number, after[1]))
            met.append(after)
        return WatchState(tail, tuple(met))

    def allows(self, state: WatchState, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Say for each of `ids`, shape (n,), whether it may follow."""
        if state.bound is not None:
            number, bound = state.bound
            return self._openings[number].rule.allows(bound, ids)
        allowed = np.ones(ids.size, dtype=np.bool_)
        for number, (opening, met) in enumerate(zip(self._openings, state.met, strict=True)):
            if self._wide[number]:
                for past in self._running_past(number, state.tail):
                    allowed &= ~_among(ids, past)
            if met is not None and (self._wide[number] or len(met[0]) >= opening.least):
                self._bind(opening, met, ids, allowed)
        return allowed

    def forced(self, state: WatchState) -> tuple[int, ...]:
        """Return what the rule of a call that has begun forces."""
        if state.bound is None:
            return ()
        number, bound = state.bound
        return self._openings[number].rule.forced(bound)

    def _followed(self, opening: Opening, met: Met, token: int) -> Met | None:
        """Return what stands behind an opening after a token; None where it cannot become a head."""
        behind, state = met
        behind = opening.stripped(behind + self._pieces[token])
        if not behind:
            return behind, state
        return (behind, _after(opening.rule, state, [token])) if opening.is_begun(behind) else None

    def _begun(self, opening: Opening, text: bytes, size: int) -> Met | None:
        """Return what stands behind an opening that the last bytes of a text complete; None where none may begin there."""
        at = text.rfind(opening.text)
        if at < 0 or at + len(opening.text) <= len(text) - size:
            return None
        behind = opening.stripped(text[at + len(opening.text) :])
        if not behind:
            return behind, _FRESH
        if not opening.is_begun(behind):
            return None
        return behind, _after(opening.rule, _FRESH, self._tokenize(behind))

    def _bind(
        self, opening: Opening, met: Met, ids: NDArray[np.int64], allowed: NDArray[np.bool_]
    ) -> None:
        """Rule out tokens that complete a head and are not what the rule has there."""
        behind, state = met
        for rest in {each[len(behind) :] for each in opening.heads if each.startswith(behind)}:
            complete = _among(ids, self._pieces.with_text(rest, at_start=True))
            if complete.any():
                taken = [_after(opening.rule, state, [each]) is not None for each in ids[complete]]
                allowed[complete] &= np.array(taken, dtype=np.bool_)

    def _running_past(self, number: int, tail: bytes) -> Iterator[NDArray[np.int64]]:
        """Yield the tokens that complete the text of an opening and a head at once."""
        text = self._openings[number].text
        for size in range(min(len(text) - 1, len(tail)) + 1):
            if not size or text.startswith(tail[-size:]):
                past = self._past.get((number, size))
                if past is None:
                    past = self._past[number, size] = self._past_of(number, text[size:], size)
                if past.size:
                    yield past

    def _past_of(self, number: int, rest: bytes, begun: int) -> NDArray[np.int64]:
        opening, ids = self._openings[number], list[int]()
        for token in self._pieces.with_text(rest, at_start=begun > 0).tolist():
            if opening.stripped(self._pieces[token].rpartition(rest)[2]).startswith(opening.heads):
                ids.append(token)
        return np.array(ids, dtype=np.int64)


def _after(rule: GrammarAutomaton, state: Any, tokens: Iterable[int]) -> GrammarState | None:
    """Return the state after some tokens, however they spell what the rule has there; None where it has another text."""
    state = rule.start() if state is _FRESH else state
    for token in tokens:
        if state is None or not rule.takes(state, token):
            return None
        state = rule.step(state, token)
    return state  # type: ignore[no-any-return]  # one of the rule's


@dataclass(frozen=True, slots=True)
class TriggerState:
    """Where an answer is.

    Args:
        bound: state of the rule; None before the trigger.
        tail: end of the text before it, in which it may have begun.
        watched: where the text is for what looks for other beginnings.
    """

    bound: Any = None
    tail: bytes = b""
    watched: WatchState | None = None


class AfterTrigger:
    """Leaves an answer free up to a trigger; see `Automaton`. That ends with a token: one that would run past it may not follow, for the rule would not see it.

    Args:
        rule: binds what follows the trigger; None lets it never be complete.
        trigger: begins the rule.
        watch: looks for calls that begin without it; None where none may.
    """

    def __init__(
        self, rule: Automaton[Any] | None, trigger: Trigger, watch: Watch | None = None
    ) -> None:
        self._rule = rule
        self._trigger = trigger
        self._watch = watch

    def start(self) -> TriggerState:
        """Return the state before the first token."""
        return TriggerState(watched=None if self._watch is None else self._watch.start())

    def step(self, state: TriggerState, token: int) -> TriggerState:
        """Return the state after a token that `allows` lets follow."""
        tail, watched = state.tail, state.watched
        if self._rule is not None and state.bound is not None:
            return TriggerState(self._rule.step(state.bound, token))
        if self._watch is not None and watched is not None:
            watched = self._watch.step(watched, token)
            if watched.bound is not None:
                return TriggerState(watched=watched)
        text, trigger = tail + self._trigger.pieces[token], self._trigger.text
        if self._rule is not None and text.endswith(trigger):
            return TriggerState(self._rule.start())
        begun = range(min(len(trigger) - 1, len(text)), 0, -1)
        size = next((size for size in begun if trigger.startswith(text[-size:])), 0)
        return TriggerState(None, text[len(text) - size :], watched)

    def allows(self, state: TriggerState, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Say for each of `ids`, shape (n,), whether it may follow."""
        tail, watched = state.tail, state.watched
        if self._rule is not None and state.bound is not None:
            return self._rule.allows(state.bound, ids)
        if self._watch is None or watched is None:
            allowed = np.ones(ids.size, dtype=np.bool_)
        else:
            allowed = self._watch.allows(watched, ids)
            if watched.bound is not None:
                return allowed
        for size in range(len(tail) + 1):
            if not size or self._trigger.text.startswith(tail[-size:]):
                past = self._trigger.running_past(size, or_to=self._rule is None)
                if past.size:
                    allowed &= ~_among(ids, past)
        return allowed

    def forced(self, state: TriggerState) -> tuple[int, ...]:
        """Return what the rule forces."""
        if self._rule is not None and state.bound is not None:
            return self._rule.forced(state.bound)
        watched = state.watched
        return () if self._watch is None or watched is None else self._watch.forced(watched)
