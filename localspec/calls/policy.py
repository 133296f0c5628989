"""CallPolicy: which functions may be called, how often and in what order. Knows no conversation and no grammar.

A rule names functions by a pattern, in which `*` stands for any text. Counts and order are those of a whole conversation.
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Literal

from localspec.display import printable_line
from localspec.errors import UsageError

ToolChoice = Literal["auto", "none", "required"]
"""Whether the next answer may call, must not, or must."""
Turn = Mapping[str, int]
"""Functions that may be called at some point of an answer, each with the turn behind its call."""
_LONGEST = 8
"""Calls that a bound lets stand in one answer; the next answer may have more."""
_MOST_TURNS = 128


@dataclass(frozen=True, slots=True)
class Made:
    """A call that was made.

    Args:
        name: of the function.
        done: it has a result, which is no error.
    """

    name: str
    done: bool = False


@dataclass(frozen=True, slots=True)
class CallPolicy:
    """Rules for the calls of a conversation; without any, all functions may be called at any time.

    Args:
        allow: what may be called; None allows all.
        deny: what may not be called, and is not offered at all.
        require: of each the answers are calls until there is one: of these first, where they may be called.
        at_most: how often.
        after: what may be called only once there is a call of each of these, with a result that is no error.
        done: names that count as called with a result: what the application knows, such as an approval.
        choice: for the next answer.
        parallel: whether an answer may have several calls.
        lenient: whether JSON at the end of an answer's words that names a function and its arguments is a call of it,
            which no grammar bound: for whoever asks before anything is carried out.
    """

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    require: tuple[str, ...] = ()
    at_most: tuple[tuple[str, int], ...] = ()
    after: tuple[tuple[str, tuple[str, ...]], ...] = ()
    done: tuple[str, ...] = ()
    choice: ToolChoice = "auto"
    parallel: bool = True
    lenient: bool = False

    def offers(self, name: str) -> bool:
        """Say whether a model is told of a function at all."""
        return not _any(self.deny, name)

    def under(self, rules: "CallPolicy") -> "CallPolicy":
        """Return this policy with others' rules besides: what either forbids is forbidden.

        `allow` of this one is names here and no patterns; `choice`, `done` and `lenient` are its own.
        """
        allow = rules.allow if self.allow is None else self.allow
        if rules.allow is not None and self.allow is not None:
            allow = tuple(name for name in self.allow if _any(rules.allow, name))
        return replace(
            self,
            allow=allow,
            deny=(*self.deny, *rules.deny),
            require=(*self.require, *rules.require),
            at_most=(*self.at_most, *rules.at_most),
            after=(*self.after, *rules.after),
            parallel=self.parallel and rules.parallel,
        )

    def turns(self, names: Iterable[str], made: Sequence[Made]) -> "CallTurns":
        """Return the calls that the next answer may have.

        Args:
            names: of the functions that there are.
            made: the calls so far.

        Raises:
            UsageError: a call is required, and none is allowed.
        """
        found = _Turns(self, names, made)
        if self.choice == "none":
            return CallTurns(({},), required=False)
        required = self.choice == "required" or bool(found.wanted)
        turns = found.listed()
        if required and not turns[0]:
            which = f" of {', '.join(found.wanted)}" if found.wanted else ""
            raise UsageError(
                f"a call{which} is required, and the rules for calls allow none now: relax one of them"
            )
        return CallTurns(turns, required)


ASKED_FIRST = CallPolicy(lenient=True)
"""Of replies whose calls somebody allows first: also what a model wrote in another form than its own is a call."""


@dataclass(frozen=True, slots=True)
class CallTurns:
    """The calls that an answer may have, as an automaton.

    Args:
        turns: the answer begins in the first; where nothing may be called, it ends.
        required: the answer has a call.
    """

    turns: tuple[Turn, ...]
    required: bool = False

    @property
    def names(self) -> set[str]:
        """All functions that may be called in the answer."""
        return {name for turn in self.turns for name in turn}

    def let(self, names: Iterable[str]) -> int:
        """Return how many of these calls the answer may have, in this order."""
        count, turn = 0, self.turns[0]
        for name in names:
            if name not in turn:
                break
            count, turn = count + 1, self.turns[turn[name]]
        return count


_State = tuple[tuple[int, ...], tuple[str, ...]]
"""How often each rule of `at_most` still lets call, and what of `require` has not been called yet."""


class _Turns:
    """Unfolds a policy from where a conversation is. What needs a result cannot change within an answer."""

    def __init__(self, policy: CallPolicy, names: Iterable[str], made: Sequence[Made]) -> None:
        self._policy = policy
        done = {*policy.done, *(each.name for each in made if each.done)}
        self._names = [name for name in names if self._may(name, done)]
        self._left = tuple(
            min(_LONGEST, most - sum(fnmatchcase(each.name, pattern) for each in made))
            for pattern, most in policy.at_most
        )
        self.wanted = tuple(
            each for each in policy.require if not _any((each,), *(one.name for one in made))
        )

    def listed(self) -> tuple[Turn, ...]:
        """Return the turns, the one that an answer begins with first."""
        start: _State = (self._left, self.wanted)
        numbers, waiting, turns = {start: 0}, [start], list[Turn]()
        for state in waiting:  # grows meanwhile
            turn: dict[str, int] = {}
            for name in self._callable(state):
                following = self._after(state, name)
                if following not in numbers:
                    numbers[following] = len(waiting)
                    waiting.append(following)
                turn[name] = numbers[following]
            turns.append(turn)
            if not self._policy.parallel or len(waiting) > _MOST_TURNS:
                return dict.fromkeys(turns[0], 1), {}
        return tuple(turns)

    def _may(self, name: str, done: set[str]) -> bool:
        policy = self._policy
        allowed = policy.allow is None or _any(policy.allow, name)
        return (
            allowed
            and policy.offers(name)
            and all(
                _any((needed,), *done)
                for pattern, before in policy.after
                if fnmatchcase(name, pattern)
                for needed in before
            )
        )

    def _callable(self, state: _State) -> list[str]:
        left, wanted = state
        names = [
            name
            for name in self._names
            if all(
                more > 0 or not fnmatchcase(name, pattern)
                for (pattern, _), more in zip(self._policy.at_most, left, strict=True)
            )
        ]
        return [name for name in names if _any(wanted, name)] or names

    def _after(self, state: _State, name: str) -> _State:
        left, wanted = state
        rules = zip(self._policy.at_most, left, strict=True)
        return (
            tuple(more - fnmatchcase(name, pattern) for (pattern, _), more in rules),
            tuple(each for each in wanted if not fnmatchcase(name, each)),
        )


def _any(patterns: Iterable[str], *names: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)


def policy_of_toml(text: str, what: str) -> CallPolicy:
    """Return the policy in a file.

    Its keys are `allow`, `deny` and `require`, lists of names; `at_most`, a number for all calls, or a table of names
    and numbers; `after`, a table of names and of what is to be called before; and `parallel`.

    Args:
        text: what the file says.
        what: how errors call the file.

    Raises:
        UsageError: it is no policy.
    """
    try:
        values = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{what} is not valid TOML: {printable_line(str(error))[:120]}") from None
    unknown = sorted(values.keys() - _KEYS)
    if unknown:
        name = printable_line(unknown[0])[:40]
        raise UsageError(f"{what} has the key {name!r}: choose among {', '.join(_KEYS)}")
    allow = _texts(values["allow"], f"allow in {what}") if "allow" in values else None
    parallel = values.get("parallel", True)
    if not isinstance(parallel, bool):
        raise UsageError(f"parallel in {what} is {parallel!r}: write true or false")
    most = values.get("at_most", {})
    return CallPolicy(
        allow,
        _texts(values.get("deny", []), f"deny in {what}"),
        _texts(values.get("require", []), f"require in {what}"),
        tuple(_bounds(most if isinstance(most, dict) else {"*": most}, f"at_most in {what}")),
        tuple(_orders(values.get("after", {}), f"after in {what}")),
        parallel=parallel,
    )


_KEYS = ("allow", "deny", "require", "at_most", "after", "parallel")


def _texts(value: Any, what: str) -> tuple[str, ...]:
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(each, str) and each for each in listed):
        raise UsageError(f"{what} is {_short(value)}: write a list of names")
    return tuple(listed)


def _bounds(value: dict[str, Any], what: str) -> Iterator[tuple[str, int]]:
    for name, most in value.items():
        if not isinstance(most, int) or isinstance(most, bool) or most < 0:
            raise UsageError(f"{what} is {_short(most)}: write a whole number, 0 or more")
        yield name, most


def _orders(value: Any, what: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    if not isinstance(value, dict):
        raise UsageError(
            f'{what} is {_short(value)}: write a table, such as write_file = ["search"]'
        )
    for name, before in value.items():
        yield name, _texts(before, f"{name} {what}")


def _short(value: Any) -> str:
    return printable_line(repr(value))[:40]
