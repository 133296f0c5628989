"""Option: what is known of one option beside its type and default, and the one check of its values.

An option is a field of a dataclass in this room. Flags, settings, variables, lines of a batch, arms of a comparison, the
chat's `/set` and the engine's wire are derived from these; none of them is known here.
"""

import inspect
import json
import math
import re
import shlex
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from localspec.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Kind = Literal["whole", "number", "switch", "text", "choice", "texts", "other"]
T = TypeVar("T")
D = TypeVar("D", bound="DataclassInstance")

_LONGEST_OBJECT = 1 << 14
_KINDS: dict[Any, Kind] = {
    int: "whole",
    float: "number",
    bool: "switch",
    str: "text",
    tuple[str, ...]: "texts",
}
_TAKES: dict[Kind, str] = {
    "whole": "a whole number",
    "number": "a number",
    "switch": "true or false",
    "text": "a text",
    "texts": "a list of texts",
}
_TYPES: dict[Kind, Any] = {"whole": (), "number": float, "switch": bool, "text": str, "choice": str}
_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}
_MOST_WHOLE = 1 << 128  # above any seed, and still printed on one line
_MOST_CHARS = 60
_METADATA = "option"


@dataclass(frozen=True, slots=True)
class Option:
    """What is known of one option.

    Args:
        help: what its flag does: what the docstring of its class says of the field.
        name: what users call it, in flags, settings and variables; the field's name if empty.
        short: the letter that is its flag, too; empty if none is.
        metavar: what stands for its value in help.
        group: which flags it stands among; empty if it has no flag.
        key: whether settings files and the environment may set it.
        unset: the word that users write for None.
        takes: what values it takes, in words; empty derives them from the type.
        least: the smallest number that it takes.
        most: the largest number that it takes.
        range_text: the range in words; empty derives them from the bounds.
        choices: the texts that it takes.
        others: gives further ones that it takes, if there are any: those of other packages.
        numbers: whether it takes whole numbers beside its choices, as texts.
        commas: whether several texts may stand in one, with commas between them.
        is_object: whether it is a text of JSON, which files may write as a table.
        field: the field's name.
        kind: what values it takes.
        default: its value if it is not set.
        may_be_unset: whether None is a value of it.
        needs: which of the `Abilities` of an engine it is for; empty: every engine takes it.
    """

    help: str = ""
    name: str = ""
    short: str = ""
    metavar: str | None = None
    group: str = ""
    key: bool = False
    unset: str = ""
    takes: str = ""
    least: float = -math.inf
    most: float = math.inf
    range_text: str = ""
    choices: tuple[str, ...] = ()
    others: Callable[[], Collection[str]] | None = None
    numbers: bool = False
    commas: bool = False
    is_object: bool = False
    field: str = ""
    kind: Kind = "other"
    default: Any = None
    may_be_unset: bool = False
    needs: str | None = None

    def read(self, value: object) -> Any:
        """Return the value that one of JSON or TOML means; its range is not looked at.

        Raises:
            ValueError: it means none.
        """
        if value == self.unset and self.unset:
            return None
        if self.kind == "texts":
            value = self._texts(value)
        if self.is_object and isinstance(value, Mapping):
            value = as_object(value)
        if isinstance(value, bool) and {"on", "off"} <= {*self.choices}:
            value = "on" if value else "off"
        if self.numbers and isinstance(value, int):
            value = str(value)
        if not (self._fits(value) and self._is_choice(value)):
            raise ValueError(value)
        if self.kind != "number":
            return value
        number = float(value)  # type: ignore[arg-type]  # a number fits
        if not math.isfinite(number):
            raise ValueError(value)
        return number

    def _texts(self, value: object) -> object:
        """Return a list as a tuple, and texts with commas as those between them; of anything else nothing is changed.

        Raises:
            ValueError: there is nothing but commas; no text at all, or one that is empty, means none.
        """
        if self.commas and isinstance(value, str):
            value = [value]
        if not isinstance(value, list):
            return value
        if not self.commas or not all(isinstance(each, str) for each in value):
            return tuple(value)
        parts = [part.strip() for each in value for part in each.split(",")]
        if any(value) and not any(parts):
            raise ValueError(value)
        return tuple(part for part in parts if part)

    def parse(self, text: str) -> Any:
        """Return the value that a text means; its range is not looked at.

        Raises:
            ValueError: it means none.
        """
        lower = text.strip().lower()
        if self.unset and lower == self.unset:
            return None
        either = self.kind == "switch" or {"on", "off"} <= {*self.choices}
        if either and not (self.numbers and lower.isdecimal()):
            return self.read(True if lower in _TRUE else False if lower in _FALSE else text)
        if self.kind == "texts":
            return self.read(shlex.split(text))
        if self.kind in {"whole", "number"}:
            return self.read(int(text) if self.kind == "whole" else float(text))
        return self.read(text)

    def problem(self, value: object) -> str | None:
        """Return why the option cannot have a value, on one line; None if it can."""
        if value is None and self.may_be_unset:
            return None
        if not self._fits(value) or (self.is_object and not _is_object(value)):
            return f"{self.name} is {cut(value)}: it takes {self.takes}"
        if not self._is_choice(value):
            wanted = f"it takes {self.takes}" if self.numbers else ""
            return f"{self.name} is {cut(value)}: {wanted or 'choose one of ' + ', '.join(self.choices)}"
        if self.kind not in {"whole", "number"}:
            return None
        assert isinstance(value, int | float), value  # noqa: S101 - it fits
        if self.least <= value <= self.most:
            return None
        return f"{self.name} is {value}: it must be {self.range_text}"

    def _is_choice(self, value: object) -> bool:
        if not self.choices or value in self.choices:
            return True
        if not isinstance(value, str):
            return False
        is_number = self.numbers and value.isascii() and value.isdecimal() and len(value) < 10
        return is_number or (self.others is not None and value in self.others())

    def _fits(self, value: object) -> bool:
        """Return whether a value is of the right type; an int is as good as a float, a bool is no number."""
        if isinstance(value, int) and not isinstance(value, bool):
            return self.kind in {"whole", "number"} and abs(value) < _MOST_WHOLE
        if self.kind == "texts":
            return isinstance(value, tuple) and all(isinstance(each, str) for each in value)
        return isinstance(value, _TYPES.get(self.kind, object))


def option(default: T, group: str = "", metavar: str | None = None, **how: Any) -> T:
    """Return the field of a dataclass that is an option.

    Args:
        default: its value if it is not set.
        group: see `Option`; a flag is a setting, too, unless `key` says that it is none.
        metavar: see `Option`.
        how: more of `Option`.
    """
    known = Option(group=group, metavar=metavar, **{"key": bool(group), **how})
    made: Any = field(default=default, metadata={_METADATA: known})
    return made  # type: ignore[no-any-return]  # what `dataclasses.field` says of itself


@cache
def own_options(kind: "type[DataclassInstance]") -> tuple[Option, ...]:
    """Return the options that are fields of a class, not those of the classes in its fields."""
    helps, options = descriptions(kind), []
    for each in fields(kind):
        if _METADATA not in each.metadata:
            continue
        known: Option = each.metadata[_METADATA]
        hints = get_args(each.type) if isinstance(each.type, UnionType) else (each.type,)
        kinds = [_KINDS[hint] for hint in hints if hint in _KINDS]
        its_kind: Kind = "other"
        if len(hints) - (NoneType in hints) == len(kinds) == 1:
            its_kind = "choice" if known.choices else kinds[0]
        takes = f"one of {', '.join(known.choices)}" if known.choices else _TAKES.get(its_kind, "")
        bounded = known.most < math.inf
        within = f"from {known.least} to {known.most}" if bounded else f"{known.least} or more"
        options.append(
            replace(
                known,
                help=helps.get(each.name, ""),
                name=known.name or each.name,
                field=each.name,
                kind=its_kind,
                default=each.default,
                may_be_unset=NoneType in hints,
                takes=known.takes or takes,
                range_text=known.range_text or within,
                needs=getattr(kind, "NEEDS", "") if known.needs is None else known.needs,
            )
        )
    return tuple(options)


@cache
def descriptions(kind: type) -> dict[str, str]:
    """Return what the docstring of a class says of each of its arguments, which is their help, too."""
    _, _, text = inspect.cleandoc(kind.__doc__ or "").partition("Args:\n")
    entries = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", text.partition("\n\n")[0], re.MULTILINE)
    return {name: " ".join(words.split()) for name, words in entries}


@cache
def options_of(kind: "type[DataclassInstance]") -> tuple[Option, ...]:
    """Return the options of a class in their order, those of the classes in its fields among them."""
    own = {each.field: each for each in own_options(kind)}
    options: list[Option] = []
    for each in fields(kind):
        if each.name in own:
            options.append(own[each.name])
        else:
            assert isinstance(each.type, type)  # noqa: S101 - a field is an option, or a class of them
            options += options_of(each.type)
    return tuple(options)


def values_of(options: "DataclassInstance") -> dict[str, Any]:
    """Return the values of all options by the names that users know."""
    values: dict[str, Any] = {}
    own = {each.field: each for each in own_options(type(options))}
    for each in fields(options):
        value = getattr(options, each.name)
        values |= {own[each.name].name: value} if each.name in own else values_of(value)
    return values


def changed(options: D, values: Mapping[str, Any]) -> D:
    """Return options with other values.

    Args:
        options: what stays.
        values: by the names that users know; other names change nothing.

    Raises:
        UsageError: a value is of the wrong type, or out of its range, or two cannot be combined.
    """
    changes: dict[str, Any] = {}
    own = {each.field: each for each in own_options(type(options))}
    for each in fields(options):
        if each.name not in own:
            changes[each.name] = changed(getattr(options, each.name), values)
        elif own[each.name].name in values:
            changes[each.name] = values[own[each.name].name]
    return replace(options, **changes)


def check(options: "DataclassInstance") -> None:
    """Check every field that is an option.

    Raises:
        UsageError: a value is of the wrong type, or out of its range.
    """
    for option in own_options(type(options)):
        problem = option.problem(getattr(options, option.field))
        if problem is not None:
            raise UsageError(problem)


def as_object(value: object) -> str:
    """Return an object as a text of JSON, the same for the same object.

    Raises:
        ValueError: it is none.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True)
    except (TypeError, RecursionError) as error:
        raise ValueError(value) from error


def _is_object(value: object) -> bool:
    """Return whether a text is an object of JSON, and none that is longer than people write."""
    text = str(value)
    try:
        read = json.loads(text) if len(text) <= _LONGEST_OBJECT else None
        return isinstance(read, dict) and bool(as_object(read))
    except (ValueError, RecursionError):
        return False


def cut(value: object) -> str:
    """Return a value as it may stand in a message of one line."""
    try:
        text = repr(value)
    except ValueError:  # hexadecimal numbers may be longer than Python prints
        return "a number of thousands of digits"
    return text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]}…"
