"""Functions: typed Python functions as tools, their schemas taken from annotations and docstrings."""

import inspect
import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, get_type_hints

import msgspec

from localspec.calls import Tool
from localspec.display import printable, printable_line
from localspec.errors import UsageError
from localspec.messages import ToolCall, ToolResult
from localspec.toolbox.toolbox import Access, Proposal

_ARGUMENT = re.compile(r"^ +(\w+)(?: *\([^)]*\))?: +(.+(?:\n {8,}.+)*)", re.MULTILINE)
_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Function:
    """A Python function that a model may call.

    Args:
        function: with annotations of `str`, `int`, `float`, `bool`, `list`, `dict`, `Literal`, and unions of them. The
            docstring describes it, and under `Args:` its arguments. A `threading.Event` among these comes from the
            caller, who sets it to end the call.

    Attributes:
        tool: what a model reads of it.

    Raises:
        UsageError: an annotation has no schema, an argument has no name, or the function is asynchronous.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        name, self._function = function.__name__, function
        if inspect.iscoroutinefunction(function):
            raise UsageError(f"{name} is asynchronous: give a function that returns its result")
        document = inspect.getdoc(function) or ""
        described = dict(_ARGUMENT.findall(document.partition("Args:")[2]))
        hints, properties, required = get_type_hints(function), dict[str, Any](), list[str]()
        fields, self._stops = list[Any](), list[str]()
        for each, parameter in inspect.signature(function).parameters.items():
            kind = hints.get(each, Any)
            if parameter.kind not in _KEYWORD:
                raise UsageError(f"{name} takes {parameter}: name all of its arguments")
            if kind is threading.Event:
                self._stops.append(each)
                continue
            try:
                properties[each] = msgspec.json.schema(kind)
            except TypeError:
                raise UsageError(
                    f"{each} of {name} has the type {kind}: annotate it with str, int, float, bool, list, dict, Literal,"
                    " or a union of them"
                ) from None
            if each in described:
                properties[each]["description"] = " ".join(described[each].split())
            if parameter.default is parameter.empty:
                required.append(each)
                fields.append((each, kind))
            else:
                fields.append((each, kind | msgspec.UnsetType, msgspec.UNSET))
        schema = {"type": "object", "properties": properties, "required": required}
        self.tool = Tool(name, schema, document.partition("\n\n")[0].strip())
        self._arguments = msgspec.defstruct(name, fields, forbid_unknown_fields=True, kw_only=True)

    def arguments(self, call: ToolCall) -> dict[str, Any]:
        """Return the arguments of a call, without those that it leaves out.

        Raises:
            UsageError: the function does not take them.
        """
        try:
            given = msgspec.convert(self.tool.parse(call.arguments), self._arguments, strict=False)
        except msgspec.ValidationError as error:
            raise UsageError(f"{call.name}: {printable_line(str(error))[:200]}") from None
        values = msgspec.structs.asdict(given)
        return {name: each for name, each in values.items() if each is not msgspec.UNSET}

    def run(self, arguments: Mapping[str, Any], stop: threading.Event) -> Any:
        """Return what the function returns; `stop` ends it if it takes one."""
        return self._function(**arguments, **dict.fromkeys(self._stops, stop))


class Functions:
    """A toolbox of Python functions; see `Toolbox`. They are called with keyword arguments, in the caller's thread.

    The result of a call is the returned text, or the returned value as JSON; an exception is an error that the model
    reads.

    Args:
        functions: see `Function`.
        access: what their calls do to the machine.

    Raises:
        UsageError: see `Function`.
    """

    def __init__(
        self, functions: Iterable[Callable[..., Any]], access: Access = Access.RUN
    ) -> None:
        self._access = access
        self._functions = {each.__name__: Function(each) for each in functions}

    @property
    def tools(self) -> Sequence[Tool]:
        """The functions as tools."""
        return [each.tool for each in self._functions.values()]

    def propose(self, call: ToolCall) -> Proposal:
        """Return what a call would do: what its function does."""
        error = None
        try:
            self._functions[call.name].arguments(call)
        except UsageError as wrong:
            error = str(wrong)
        line = f"{call.name}({call.arguments_line})"
        return Proposal(self._access, printable(line), error=error)

    def call(self, call: ToolCall, stop: threading.Event) -> ToolResult:
        """Call a function and return its result. Python cannot stop a function that takes no `stop`."""
        function = self._functions[call.name]
        try:
            result = function.run(function.arguments(call), stop)
            text = result if isinstance(result, str) else _json(result)
        except UsageError as error:
            return ToolResult(call.id, str(error), is_error=True)
        except Exception as error:  # the model reads it, and may do better
            return ToolResult(call.id, f"{type(error).__name__}: {error}", is_error=True)
        return ToolResult(call.id, text)

    def close(self) -> None:
        """End nothing: a function that was called has ended."""


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
