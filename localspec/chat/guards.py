"""What templates may call, and what is looked at before: everything whose result is larger than what it is given.

A list of what is allowed, since Python's own types have methods that build gigabytes out of a number.
Source: what the templates of the models in `models.toml` and of transformers' documentation use, and more.
"""

import functools
import re
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.runtime import LoopContext

from localspec.chat.budget import STEP, counted, made, spend, weight

_OF_TEXT = frozenset((
    "capitalize", "casefold", "count", "endswith", "find", "format", "format_map", "index", "isalnum", "isalpha", "isascii",
    "isdecimal", "isdigit", "islower", "isnumeric", "isspace", "istitle", "isupper", "join", "lower", "lstrip",
    "partition", "removeprefix", "removesuffix", "replace", "rfind", "rindex", "rpartition", "rsplit", "rstrip", "split",
    "splitlines", "startswith", "strip", "swapcase", "title", "upper",
))  # fmt: skip
_OF_MAPPINGS = frozenset({"get", "items", "keys", "values"})
_OF_SEQUENCES = frozenset({"count", "index"})
# The others of jinja2's are made for web pages, and some of them take long or build much.
_FILTERS = frozenset((
    "abs", "attr", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first",
    "float", "format", "groupby", "indent", "int", "items", "join", "last", "length", "list",
    "lower", "map", "max", "min", "reject", "rejectattr", "replace", "reverse", "round", "safe",
    "select", "selectattr", "sort", "string", "sum", "title", "tojson", "trim", "truncate", "unique",
    "upper", "urlencode", "wordcount",
))  # fmt: skip
_READ_NOTHING = frozenset({"count", "d", "default", "first", "last", "length", "safe"})
_TESTS_THAT_READ = frozenset((
    "in", "==", "eq", "equalto", "!=", "ne", "<", "lt", "lessthan", "<=",
    "le", ">", "gt", "greaterthan", ">=", "ge", "lower", "upper",
))  # fmt: skip
_LONG_NUMBER = re.compile(r"[0-9]{4}|\*")
_NESTED = re.compile(r"\{[^{}]*\{")
_MOST_BITS = 4096
_MOST_DIGITS = 100
_HEAVY = 1 << 20


def guarded_filters(filters: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Return those filters that templates may use, each with what is looked at before and after."""
    return {name: _guarded(name, filters[name]) for name in filters if name in _FILTERS}


def guarded_tests(tests: Mapping[str, Any]) -> dict[str, Any]:
    """Return all tests; those that read a value whole have it counted."""
    return {
        name: _reading(test) if name in _TESTS_THAT_READ else test for name, test in tests.items()
    }


def check_call(called: object, args: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the arguments to call something with.

    Raises:
        SecurityError: it is a method that templates may not call.
        OverflowError: the budget does not allow what it would make.
    """
    if isinstance(called, LoopContext):
        return (counted(args[0]), *args[1:]) if args else args
    called = getattr(called, "__wrapped__", called)  # jinja2 has a stand-in for `str.format`
    if not isinstance(called, types.BuiltinMethodType | types.MethodType):
        return args
    owner, name = called.__self__, called.__name__
    if isinstance(owner, str):
        return _of_text(owner, name, args, named)
    if isinstance(called, types.BuiltinMethodType):
        allowed = _OF_MAPPINGS if isinstance(owner, dict) else _OF_SEQUENCES
        if name not in allowed or not isinstance(owner, dict | list | tuple):
            raise SecurityError(f"the method {name} is not allowed")
        made(args)  # compared, or hashed
        if name != "get":
            made(owner)
    elif isinstance(owner, LoopContext):
        made(args)  # compared with what they were before
    return args


def _of_text(
    text: str, name: str, args: tuple[Any, ...], named: Mapping[str, Any]
) -> tuple[Any, ...]:
    if name not in _OF_TEXT:
        raise SecurityError(f"the method {name} of texts is not allowed")
    spend(len(text) >> 3)
    if name == "replace":
        _grows_by_replacing(text, *args)
    elif name == "join" and args:
        return (_joined(args[0], text), *args[1:])
    elif name in {"format", "format_map"}:
        check_format(text, args, named)
    return args


def check_numbers(left: Any, right: Any) -> None:
    """Refuse to calculate with numbers of a thousand digits."""
    for each in (left, right):
        if isinstance(each, int) and each.bit_length() > _MOST_BITS:
            raise SecurityError(f"a whole number of more than {_MOST_BITS} bits")


def check_format(pattern: str, *given: Any) -> str:
    """Return a format, unless it has widths that would fill the memory; what is given may be written at every mark."""
    if _LONG_NUMBER.search(pattern) or _NESTED.search(pattern.replace("{{", "")):
        raise SecurityError("a format with a width of four digits, or one that is calculated")
    spend((pattern.count("%") + pattern.count("{")) * weight(given, _HEAVY))
    return pattern


def _guarded(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    look = _LOOKS.get(name)
    # A filter that is given the context, or the like, has it before its value.
    first = 1 if hasattr(original, "jinja_pass_arg") else 0

    @functools.wraps(original)
    def filtered(*args: Any, **named: Any) -> Any:
        spend(STEP)
        if len(args) > first and name not in _READ_NOTHING:
            value = _taken(args[first])
            if look is not None:
                value = look(value, *args[first + 1 :], **named)
            args = (*args[:first], value, *args[first + 1 :])
        result = original(*args, **named)
        made(result)
        return result

    return filtered


def _reading(test: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(test)
    def judged(*args: Any, **named: Any) -> Any:
        for each in args:
            made(each)
        return test(*args, **named)

    return judged


def _taken(value: Any) -> Any:
    """Return a value whose reading is counted."""
    if isinstance(value, Iterator):
        return counted(value)
    if hasattr(value, "__len__"):
        spend(len(value) >> 3 if isinstance(value, str) else 4 * len(value))
    return value


def _grows_by_replacing(text: str, old: Any = "", new: Any = "", *_: Any, **__: Any) -> str:
    spend(text.count(str(old)) * len(str(new)) >> 3)
    return text


def _joined(items: Any, between: Any = "", *_: Any, **__: Any) -> list[Any]:
    found = list(items)
    made(found)
    spend(len(found) * len(str(between)) >> 3)
    return found


def _indented(value: Any, width: Any = 4, *_: Any, **__: Any) -> str:
    text = str(value)
    spend((len(text) + 2) * (len(width) if isinstance(width, str) else abs(int(width))) >> 3)
    return text


def _rounded(value: Any, precision: Any = 0, *_: Any, **__: Any) -> Any:
    check_numbers(value, 0)
    if abs(precision) > _MOST_DIGITS:
        raise SecurityError(f"rounding to more than {_MOST_DIGITS} digits")
    return value


def _summed(value: Any, _attribute: Any = None, start: Any = 0, **_: Any) -> Any:
    if not isinstance(start, int | float):
        raise SecurityError("a sum of what is no number")
    return value


def _as_json(value: Any, *args: Any, **named: Any) -> Any:
    for each in (*args, *named.values()):
        for part in each if isinstance(each, list | tuple) else (each,):
            if (len(part) if isinstance(part, str) else part or 0) > STEP:
                raise SecurityError(f"JSON with more than {STEP} characters between its parts")
    return value


_LOOKS: Mapping[str, Callable[..., Any]] = {
    "replace": lambda value, *args, **named: _grows_by_replacing(str(value), *args, **named),
    "join": lambda value, d="", *_, **__: _joined(value, d),
    "indent": _indented,
    "round": _rounded,
    "sum": _summed,
    "tojson": _as_json,
    "format": lambda value, *args, **named: check_format(str(value), args, named),
}
