"""Functions: typed Python functions as tools, their schemas taken from annotations and docstrings."""

import inspect
import json
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, get_type_hints

import msgspec

from localspec.calls import Tool
from localspec.display import printable_line
from localspec.errors import UsageError
from localspec.messages import ToolCall, ToolResult
from localspec.toolbox.toolbox import Access, Proposal

_ARGUMENT = re.compile(r"^ +(\w+)(?: *\([^)]*\))?: +(.+(?:\n {8,}.+)*)", re.MULTILINE)
_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Functions:
    """A toolbox of Python functions; see `Toolbox`. They are called with keyword arguments, in the thread that asks.

    What a function returns is told as text, or as JSON; what it raises is an error that the model sees.

    Args:
        functions: with annotations of `str`, `int`, `float`, `bool`, `list`, `dict`, `Literal`, and unions of them. The
            docstring describes the function, and under `Args:` its arguments.
        access: what their calls do to the machine.

    Raises:
        UsageError: an annotation has no schema, or an argument has no name.
    """

    def __init__(
        self, functions: Iterable[Callable[..., Any]], access: Access = Access.RUN
    ) -> None:
        self._access = access
        self._functions = {each.__name__: each for each in functions}
        self._tools = [tool_of(each) for each in self._functions.values()]

    @property
    def tools(self) -> Sequence[Tool]:
        """Return the functions as tools."""
        return self._tools

    def propose(self, call: ToolCall) -> Proposal:
        """Return what a call would do: whatever its function does."""
        shown = printable_line(f"{call.name}({call.arguments})")
        try:
            self._bound(call)
        except UsageError as error:
            return Proposal(self._access, shown, error=str(error))
        return Proposal(self._access, shown)

    def call(self, call: ToolCall, stop: threading.Event) -> ToolResult:  # noqa: ARG002 - Python cannot stop a function
        """Call a function and return what it returns."""
        try:
            result = self._bound(call)()
            text = (
                result
                if isinstance(result, str)
                else json.dumps(result, ensure_ascii=False, default=str)
            )
        except UsageError as error:
            return ToolResult(call.id, str(error), is_error=True)
        except Exception as error:  # whatever it is: the model is told, and may do better
            return ToolResult(call.id, f"{type(error).__name__}: {error}", is_error=True)
        return ToolResult(call.id, text)

    def close(self) -> None:
        """End nothing: a function that was called has ended."""

    def _bound(self, call: ToolCall) -> Callable[[], Any]:
        function = self._functions.get(call.name)
        if function is None:
            raise UsageError(
                f"there is no function {call.name}: call one of {', '.join(self._functions)}"
            )
        tool = next(each for each in self._tools if each.name == call.name)
        given = tool.parse(call.arguments)
        kinds = _parameters(function)
        fields = [
            (name, kind) if required else (name, kind | msgspec.UnsetType, msgspec.UNSET)
            for name, (kind, required) in kinds.items()
        ]
        arguments = msgspec.defstruct("Arguments", fields, forbid_unknown_fields=True, kw_only=True)
        try:
            found = msgspec.convert(given, arguments, strict=False)
        except msgspec.ValidationError as error:
            raise UsageError(f"{call.name}: {error}") from None
        values = {each: getattr(found, each) for each in kinds}
        return lambda: function(**{k: v for k, v in values.items() if v is not msgspec.UNSET})


def tool_of(function: Callable[..., Any]) -> Tool:
    """Return a function as a tool.

    Raises:
        UsageError: an annotation has no schema, an argument has no name, or the function is asynchronous.
    """
    name = function.__name__
    if inspect.iscoroutinefunction(function):
        raise UsageError(f"{name} is asynchronous: give a function that returns its result")
    document = inspect.getdoc(function) or ""
    described = dict(_ARGUMENT.findall(document.partition("Args:")[2]))
    properties: dict[str, Any] = {}
    kinds = _parameters(function)
    for each, (kind, _) in kinds.items():
        try:
            schema = msgspec.json.schema(kind)
        except TypeError:
            raise UsageError(
                f"{each} of {name} has the type {kind}: annotate it with str, int, float, bool, list, dict, Literal, or a"
                " union of them"
            ) from None
        if each in described:
            schema["description"] = " ".join(described[each].split())
        properties[each] = schema
    required = [each for each, (_, required) in kinds.items() if required]
    parameters = {"type": "object", "properties": properties, "required": required}
    return Tool(name, parameters, document.partition("\n\n")[0].strip())


def _parameters(function: Callable[..., Any]) -> dict[str, tuple[Any, bool]]:
    """Return a function's parameters by name: the annotated type, and whether it has no default."""
    hints = get_type_hints(function)
    found = {}
    for each in inspect.signature(function).parameters.values():
        if each.kind not in _KEYWORD:
            raise UsageError(f"{function.__name__} takes {each}: name all of its arguments")
        found[each.name] = hints.get(each.name, Any), each.default is inspect.Parameter.empty
    return found
