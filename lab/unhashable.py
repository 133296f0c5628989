"""A rule for mypy: no set and no dict is asked for a value of which nothing is known, such as one that a client sent.

`kind in {"function", "tool"}` raises TypeError where `kind` is a list, and a server answers 500. A tuple, or a check of the
value's type before, holds for every value. mypy knows which values are of no known type: those are reported here.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mypy.plugin import MethodContext, Plugin
from mypy.types import AnyType, Type, UnionType, get_proper_type

_ROOMS = (
    "localspec.plugins.serve.",
    "localspec.plugins.remote.",
    "localspec.toolbox.",
    "localspec.batch.",
    "localspec.messages",
    "localspec.options.fields",
)
"""Modules that read what others wrote; all others get values of known types, and `grammar` has the types of a schema checked first."""
_MESSAGE = (
    "a set or a dict is asked for a value of no known type, which may have no hash:"
    " use a tuple, or check its type before"
)
_ASKED = {
    f"{kind}.{method}"
    for kind in ("builtins.set", "builtins.frozenset", "builtins.dict", "typing.Mapping")
    for method in ("__contains__", "__getitem__", "get", "pop", "setdefault", "__setitem__", "add")
} | {"typing.AbstractSet.__contains__", "typing.Container.__contains__"}


class UnhashablePlugin(Plugin):
    """Reports such questions."""

    def get_method_hook(self, fullname: str) -> Callable[[MethodContext], Type] | None:
        """Return what looks at the arguments of a method of sets and dicts."""
        return _check if fullname in _ASKED else None


def _check(context: MethodContext) -> Type:
    module = getattr(context.api, "tree", None)
    name = "" if module is None else module.fullname
    first = context.arg_types[0] if context.arg_types else []
    if f"{name}.".startswith(_ROOMS) and first and _is_unknown(first[0]):
        with _unfiltered(context.api):
            context.api.fail(_MESSAGE, context.context)
    return context.default_return_type


@contextmanager
def _unfiltered(checker: Any) -> Iterator[None]:
    """Report at once: mypy tries `in` with its errors held back, and drops them where the other side may be anything."""
    # ruff: noqa: SLF001 - mypy has no other way
    errors = checker.errors
    watchers, errors._watchers = errors._watchers, []
    try:
        yield
    finally:
        errors._watchers = watchers


def _is_unknown(kind: Type) -> bool:
    proper = get_proper_type(kind)
    if isinstance(proper, UnionType):
        return any(_is_unknown(each) for each in proper.items)
    return isinstance(proper, AnyType)


def plugin(_version: str) -> type[Plugin]:
    """Return the plugin, as mypy asks for it."""
    return UnhashablePlugin
