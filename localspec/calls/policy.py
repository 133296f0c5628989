"""CallPolicy: which functions may be called, how often and in what order. Knows no conversation and no grammar.

A rule names functions by a pattern, in which `*` stands for any text. Counts and order are those of a whole conversation.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from msgspec import Meta, Struct

from localspec.calls import CallFormat, Tool
from localspec.errors import UsageError

ToolChoice = Literal["auto", "none", "required"]
"""Whether the next answer may call, must not, or must."""
NO_CALLS = (
    "{} cannot call tools: leave them out, or choose a model that can, such as qwen2.5-coder-1.5b"
)


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
            which no grammar bound: where a person allows calls before they are carried out.
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
        """Return whether a model reads of a function at all."""
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

    def offer(self, names: Iterable[str], made: Sequence[Made]) -> "CallOffer":
        """Return the calls that the next answer may have.

        Args:
            names: of the functions that there are.
            made: the calls so far.

        Raises:
            UsageError: a call is required, and none is allowed.
        """
        if self.choice == "none":
            return CallOffer(())
        done = {*self.done, *(each.name for each in made if each.done)}
        left = [
            (pattern, most - sum(fnmatchcase(each.name, pattern) for each in made))
            for pattern, most in self.at_most
        ]
        wanted = [each for each in self.require if not _any((each,), *(m.name for m in made))]
        spent = [pattern for pattern, number in left if number <= 0]
        callable_ = [each for each in names if self._may(each, done) and not _any(spent, each)]
        first = [each for each in callable_ if _any(wanted, each)]
        required = self.choice == "required" or bool(wanted)
        if required and not callable_:
            which = f" of {', '.join(wanted)}" if wanted else ""
            raise UsageError(
                f"a call{which} is required, and the rules for calls allow none now: relax one of them"
            )
        offered = first or callable_
        # What is required is called one at a time.
        bounds = tuple((pattern, number) for pattern, number in left if _any((pattern,), *offered))
        return CallOffer(tuple(offered), required, bool(first) or not self.parallel, bounds)

    def _may(self, name: str, done: set[str]) -> bool:
        allowed = self.allow is None or _any(self.allow, name)
        needed = (n for pattern, names in self.after if fnmatchcase(name, pattern) for n in names)
        return allowed and self.offers(name) and all(_any((each,), *done) for each in needed)


WITH_APPROVAL = CallPolicy(lenient=True)
"""Of replies whose calls a person allows first: also what a model wrote in another form than its own is a call."""


@dataclass(frozen=True, slots=True)
class CallOffer:
    """The calls that an answer may have.

    Args:
        names: of the functions that may be called.
        required: the answer has a call.
        single: the answer has no more than one.
        bounds: how many calls of functions by a pattern the answer may have, one or more.
    """

    names: tuple[str, ...]
    required: bool = False
    single: bool = False
    bounds: tuple[tuple[str, int], ...] = ()

    @property
    def most(self) -> int | None:
        """So many calls of whatever functions break no rule; None for any number."""
        return 1 if self.single else min((number for _, number in self.bounds), default=None)

    def allowed(self, names: Sequence[str]) -> int:
        """Return how many of these calls the answer may have, in this order."""
        for count, name in enumerate(names):
            before = names[: count + 1]
            if (
                name not in self.names
                or (self.single and count)
                or any(sum(fnmatchcase(n, p) for n in before) > most for p, most in self.bounds)
            ):
                return count
        return len(names)


@dataclass(frozen=True, slots=True, eq=False)
class OfferedCalls:
    """The calls that an answer may have, and how they are written.

    Args:
        form: how.
        tools: the functions that there are.
        offer: which of them may be called, and how often.
        control: ids of control tokens by their text; a format may be made of them.
    """

    form: CallFormat
    tools: Sequence[Tool]
    offer: CallOffer
    control: Mapping[str, int] = field(default_factory=dict)


def _any(patterns: Iterable[str], *names: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)


_Name = Annotated[str, Meta(min_length=1)]
_Names = _Name | list[_Name]
_Count = Annotated[int, Meta(ge=0)]


class _File(Struct, forbid_unknown_fields=True):
    allow: _Names | None = None
    deny: _Names = []
    require: _Names = []
    at_most: _Count | dict[str, _Count] = {}
    after: dict[str, _Names] = {}
    parallel: bool = True


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
    from localspec.storage.toml import convert, parse_toml  # noqa: PLC0415 - few have rules

    file = convert(parse_toml(text, what), _File, what)
    most = file.at_most
    return CallPolicy(
        None if file.allow is None else _texts(file.allow),
        _texts(file.deny),
        _texts(file.require),
        tuple((most if isinstance(most, dict) else {"*": most}).items()),
        tuple((name, _texts(before)) for name, before in file.after.items()),
        parallel=file.parallel,
    )


def _texts(names: _Names) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)
