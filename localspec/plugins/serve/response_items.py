"""Items of OpenAI's responses as messages of a chat: messages, thoughts, calls and their results, whatever provider made them.

What a provider carries out itself (a search of the web, say), and what only it can read, is left out.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from localspec.api import UsageError, printable_line
from localspec.plugins.serve.media_parts import openai_part
from localspec.plugins.serve.tools import result_pictures, result_text

_TEXTS = ("input_text", "output_text")
_CALL, _RESULT = "_call", "_call_output"
_ARGUMENTS = ("arguments", "input", "action", "operation")
"""Where calls of all kinds have what they are called with."""
_REASONING_ID = "rs_"
_MOST_NAME_CHARS = 40


@dataclass(slots=True, eq=False)
class ItemReader:
    """Reads items, one after the other.

    Args:
        sees: whether the model does: pictures of results are then a user's message behind them.

    Attributes:
        messages: as chat completions have them.
        left_out: the types of what was left out.
    """

    sees: bool
    messages: list[Any] = field(default_factory=list)
    left_out: dict[str, None] = field(default_factory=dict)
    _thoughts: str = ""
    _pictures: list[Any] = field(default_factory=list)

    def read(self, items: Sequence[Any]) -> None:
        """Take items in.

        Raises:
            UsageError: one names what would have to be stored here, or is none.
        """
        for number, item in enumerate(items, 1):
            self._take(item, f"item {number}")
        self._show_pictures()

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out, in a sentence."""
        if not self.left_out:
            return ()
        names = ", ".join(self.left_out)
        return (f"items left out, only messages, calls and their results are read: {names}",)

    def _take(self, item: Any, what: str) -> None:
        if not isinstance(item, dict):
            raise UsageError(f"{what} is not an object: write its role and content")
        kind = item.get("type", "message")
        if not isinstance(kind, str):
            raise UsageError(f"the type of {what} is not text: write message, or that of a call")
        if kind.endswith(_RESULT):
            self._result(item)
            return
        self._show_pictures()
        is_call = kind.endswith(_CALL) and isinstance(item.get("call_id"), str)
        match kind:
            case "message":
                self._say(_message(item))
            case "reasoning":
                content = result_text(item.get("content"))
                self._thoughts += content if isinstance(content, str) else ""
            case "mcp_call":
                self._call({**item, "call_id": item.get("id")}, kind)
                self._result({"call_id": item.get("id"), "output": _outcome(item)})
            case "item_reference":
                self._refer(item, what)
            case _ if (
                is_call or kind == "function_call"
            ):  # without an id it is refused as a message
                self._call(item, kind)
            case _:
                self.left_out[printable_line(kind)[:_MOST_NAME_CHARS]] = None

    def _say(self, message: dict[str, Any]) -> None:
        if message.get("role") not in ("assistant", "tool"):
            self._thoughts = ""  # of an answer that was never finished
        elif self._thoughts and message.get("role") == "assistant":
            message = {**message, "reasoning_content": self._thoughts}
            self._thoughts = ""
        self.messages.append(message)

    def _call(self, item: dict[str, Any], kind: str) -> None:
        """Take a call in; the words and the calls of an answer are items, and one message."""
        name = item.get("name", kind.removesuffix(_CALL))
        function = {"name": name, "arguments": _arguments(item)}
        call = {"id": item.get("call_id"), "function": function}
        last = self.messages[-1] if self.messages and not self._thoughts else None
        if isinstance(last, dict) and last.get("role") == "assistant":
            self.messages[-1] = {**last, "tool_calls": [*last.get("tool_calls", ()), call]}
        else:
            self._say({"role": "assistant", "content": "", "tool_calls": [call]})

    def _result(self, item: dict[str, Any]) -> None:
        output = _output(item.get("output"))
        self._pictures += result_pictures(output, sees=self.sees)
        call_id = item.get("call_id") or item.get("id")
        content = result_text(output, sees=self.sees)
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": content})

    def _show_pictures(self) -> None:
        if self._pictures:
            self.messages.append({"role": "user", "content": self._pictures})
            self._pictures = []

    def _refer(self, item: dict[str, Any], what: str) -> None:
        """Leave out a reference to thoughts; what else it may refer to is part of what was said."""
        name = item.get("id")
        if not (isinstance(name, str) and name.startswith(_REASONING_ID)):
            raise UsageError(
                f"{what} refers to one that is not stored here: send the item itself, as clients do with store: false"
            )


def _message(item: dict[str, Any]) -> dict[str, Any]:
    content = item.get("content")
    if isinstance(content, list):
        content = [
            {**each, "type": "text"}
            if isinstance(each, dict) and each.get("type") in _TEXTS
            else openai_part(each)
            for each in content
        ]
    return {"role": item.get("role"), "content": content}


def _arguments(item: dict[str, Any]) -> Any:
    """Return what a call is called with, an object; of a tool that takes a text that text by the name `input`."""
    name = next((each for each in _ARGUMENTS if item.get(each) is not None), "arguments")
    value = item.get(name)
    if name == "input" and isinstance(value, str):
        value = {name: value}
    return _json(value) if isinstance(value, dict | list) else value


def _outcome(item: dict[str, Any]) -> Any:
    output, error = item.get("output"), item.get("error")
    return error if output is None and error is not None else output


def _output(value: Any) -> Any:
    """Return the output of a call as a text, or as parts; what a shell returns has no types, and is JSON."""
    if isinstance(value, dict):
        value = [value]
    if isinstance(value, list) and any(
        isinstance(each, dict) and "type" not in each for each in value
    ):
        return _json(value)
    return "" if value is None else value


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        raise UsageError("an item is nested too deeply: send a flatter one") from None
