"""A model's own chat template, rendered as Hugging Face and llama.cpp render it.

A template comes out of a model file, so it is a stranger's program: it runs in a process of its own, see `jinja`.
Knows no tokens.

Source of the variables: llama.cpp's `common/chat.cpp`.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec

from localspec.calls import CallFormat, Tool
from localspec.chat.jinja import JinjaError, render
from localspec.chat.known_calls import known_format, written
from localspec.chat.thinking import thinking_tags
from localspec.chat.thinking_plan import ThinkingPlan, thinking_plan
from localspec.display import printable_line
from localspec.errors import TemplateError
from localspec.messages import Message, Part, TextPart, ToolCall, ToolResult, to_json

_PROBE = "localspec-probe"  # a content that no template writes by itself
_USER = "localspec-user"
_UNKNOWN: tuple[bool, str | None] = (False, _PROBE)
_NO_PARAMETERS = {"type": "object", "properties": {}, "required": []}
_THOUGHTS = re.compile(r"\bmessage(?:\.|\[.)(thinking|reasoning)\b")
_PARTS = re.compile(r"""['"]text['"]|\.text\b""")
_THOUGHTS_AS_PART = re.compile(r"\btype\b\W+thinking\b")
_MOST_VIEWS = 64


def _now() -> datetime:
    return datetime.now().astimezone()


class ChatTemplate:
    """Turns messages into the text that a model was trained to continue.

    Args:
        source: the template, as a GGUF has it under `tokenizer.chat_template`; None or empty where it has none.
        bos_token: text of the BOS token, "" where the vocabulary has none.
        eos_token: text of the EOS token, the same way.
        model: how errors call the model.
        clock: what `strftime_now` reads.

    Attributes:
        thinking: how a reply is to think, see `thinking_as`.

    Raises:
        TemplateError: there is no template, or it is no jinja.
    """

    def __init__(
        self,
        source: str | None,
        bos_token: str,
        eos_token: str,
        *,
        model: str = "the model",
        clock: Callable[[], datetime] = _now,
    ) -> None:
        if not source or not source.strip():
            raise TemplateError(f"{model} has no chat template: use --raw")
        self.source = source
        self._model = model
        # Thinking that can be switched off is on, as in llama-server.
        self._constants = {"bos_token": bos_token, "eos_token": eos_token, "enable_thinking": True}
        self._clock = clock
        self._late: TemplateError | None = None
        self._render(None)
        self._takes_system: bool | None = None
        self._takes_later_system: bool | None = None
        self._calls: tuple[bool, str | None] | None = _UNKNOWN
        self._takes_parts: bool | None = None
        self.thinking = ThinkingPlan()
        self._views: dict[str, ChatTemplate] = {}

    def thinking_as(self, think: str | None) -> "ChatTemplate":
        """Return this template for replies that think so, see `ReplyOptions`; None leaves it to the template."""
        if think is None:
            return self
        if think not in self._views:
            tagged = bool(thinking_tags(self.source))
            plan = thinking_plan(think, self.source, self._question, tagged=tagged)
            note = printable_line(f"{self._model}'s chat template {plan.note}") if plan.note else ""
            view = copy(self)
            view.thinking = replace(plan, note=note)
            if len(self._views) == _MOST_VIEWS:
                self._views.clear()
            self._views[think] = view
        return self._views[think]

    def thoughts_end(self, close: str) -> tuple[str, str]:
        """Return the white space that the template writes before and behind the closing tag of thoughts, or else what most do."""
        turn, text = Message.assistant(_PROBE, _USER), ""
        with suppress(TemplateError):
            text = self._run([Message.user("hello"), turn], {"add_generation_prompt": False})
        end = re.search(rf"(?:{_USER}(\s*))?{re.escape(close)}(\s*){_PROBE}", text)
        if end is not None:
            return end[1] or "", end[2]
        return ("\n", "\n\n") if close == "</think>" else ("", "")

    def _question(self, variables: Mapping[str, object]) -> str | None:
        """Return the text of a question under some variables; None where the template refuses them."""
        with suppress(TemplateError):
            return self._run([Message.user(_USER)], {"add_generation_prompt": True, **variables})
        return None

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Tool] = (),
        add_generation_prompt: bool = True,
    ) -> str:
        """Return the text of a conversation, by default up to where the assistant's reply begins.

        A template that refuses a system message, or passes over it in silence, gets the system text in front of the
        first user turn, a blank line between: what Gemma's makers and llama.cpp do, rather than to lose it.
        Later ones stay where they are, so that what was evaluated before them is of use; where the template does not
        take them there, they become part of the turn before.

        Args:
            messages: the conversation, system prompt first; a template reads them as `to_json` has them, and
                arguments of calls as an object or as a text, whichever it writes as JSON.
            tools: what the model may call.
            add_generation_prompt: end with the header of the assistant's turn.

        Raises:
            TemplateError: the template refuses these messages, or leaves out a picture or a sound, or fails, or takes
                too long or too much.
        """
        text = self._rendered(messages, tools, add_generation_prompt)
        media = [part for each in messages for part in each.media]
        written = text.lower() if media else ""
        for part in media:
            if part.marker not in written:
                name = printable_line(part.name)
                raise TemplateError(
                    f"{self._model}'s chat template leaves out {name}: start a conversation without it"
                )
        return text

    def _rendered(
        self, messages: Sequence[Message], tools: Sequence[Tool], add_generation_prompt: bool
    ) -> str:
        variables: dict[str, object] = {"add_generation_prompt": add_generation_prompt}
        if tools:
            variables |= self._of_tools(tools)
        if any(each.role == "system" for each in messages[1:]):
            if self._later_system_is_read():
                with suppress(TemplateError):  # it may take one here, and not there
                    return self._run(messages, variables)
            messages = _with_system_in_turns(messages)
        if messages and messages[0].role == "system" and not self._system_is_read():
            messages = _with_system_in_first_user_turn(messages)
        return self._run(messages, variables)

    def _render(self, variables: Mapping[str, object] | None) -> str:
        if self._late is not None:  # as it would again
            raise self._late
        if variables is not None:
            variables = {**self._constants, **self.thinking.variables, **variables}
        try:
            return render(self.source, variables, self._clock())
        except JinjaError as error:
            where = f" (line {error.line})" if error.line else ""
            failure = TemplateError(
                f"{self._model}'s chat template failed: {printable_line(str(error))[:300]}{where}; "
                "use --raw to go without it"
            )
            self._late = failure if error.late else None
            raise failure from error

    def _system_is_read(self) -> bool:
        if self._takes_system is None:
            text = self._probed(Message.system(_PROBE), Message.user("hello"))
            self._takes_system = _PROBE in text
        return self._takes_system

    def _later_system_is_read(self) -> bool:
        """Return whether a system message behind a user's is rendered there, and not at the top or not at all."""
        if self._takes_later_system is None:
            text = self._probed(Message.user(_USER), Message.system(_PROBE))
            self._takes_later_system = -1 < text.find(_USER) < text.find(_PROBE)
        return self._takes_later_system

    def _probed(self, *messages: Message) -> str:
        """Return the text of messages, empty where the template refuses them."""
        try:
            return self._run(messages, {"add_generation_prompt": True})
        except TemplateError:
            return ""

    def _run(self, messages: Sequence[Message], variables: Mapping[str, object]) -> str:
        # Without tools `tools` stays undefined, and `documents` always, as in llama.cpp: templates for tool use
        # iterate over them without a look.
        values = [to_json(each) for each in messages]
        if any(each.calls for each in messages):
            form = self._form_of_calls()
            known = known_format(self.source)
            if form is not None:
                values = [_called(each, *form) for each in values]
            elif known is not None:
                values = [to_json(_with_calls_in_words(each, known)) for each in messages]
        if "reasoning_content" not in self.source:
            values = [_with_thoughts(each, self.source) for each in values]
        return self._render_messages(values, variables)

    def _render_messages(
        self, values: list[dict[str, Any]], variables: Mapping[str, object]
    ) -> str:
        if self._takes_parts is None:
            self._takes_parts = False  # while that is found out
            self._takes_parts = self._wants_parts()
        if self._takes_parts:
            values = [_in_parts(each) for each in values]
        return self._render({"messages": values, **variables})

    def _wants_parts(self) -> bool:
        """Return whether contents are written where they are lists of parts, and left out where they are texts."""
        if not _PARTS.search(self.source) or _PROBE in self._probed(Message.user(_PROBE)):
            return False
        self._takes_parts = True
        return _PROBE in self._probed(Message.user(_PROBE))

    def _of_tools(self, tools: Sequence[Tool]) -> dict[str, object]:
        values = [each.to_json() for each in tools]
        # Firefunction has a name of its own for them, as a text, and asks for the time.
        functions = json.dumps(values, ensure_ascii=False)
        now = self._clock().strftime("%b %d %Y %H:%M:%S %Z")
        return {"tools": values, "functions": functions, "datetime": now}

    def _form_of_calls(self) -> tuple[bool, str | None] | None:
        """Return whether arguments go in as objects, and the content of a message that only calls; None where it writes none.

        Most templates have it as Hugging Face does; others add up texts, or know a call by a content of None.
        """
        if self._calls is _UNKNOWN:
            forms = [(True, ""), (False, ""), (True, None), (False, None)]
            self._calls = next((each for each in forms if self._writes_calls(*each)), None)
        return self._calls

    def _writes_calls(self, objects: bool, content: str | None) -> bool:
        call = ToolCall("callOne01", _PROBE, json.dumps({_PROBE: _PROBE}))
        turn = _called(to_json(Message("assistant", (call,))), objects, content)
        variables = {
            **self._of_tools([Tool(_PROBE, _NO_PARAMETERS)]),
            "add_generation_prompt": False,
        }
        try:
            text = self._render_messages([to_json(Message.user("hello")), turn], variables)
        except TemplateError:  # this is not what it wants
            return False
        written = text.replace(str({_PROBE: _PROBE}), "").replace(json.dumps(call.arguments), "")
        return written.count(_PROBE) > 2  # beside the tool's own name


def _with_thoughts(message: dict[str, Any], source: str) -> dict[str, Any]:
    """Return a message with its thoughts where a template reads them that knows no `reasoning_content`."""
    thoughts, content = message.get("reasoning_content"), message["content"]
    if not thoughts:
        return message
    if name := _THOUGHTS.search(source):
        # gpt-oss takes none beside words and calls.
        both = content and "tool_calls" in message
        return message if both else {**message, name[1]: thoughts}
    if _THOUGHTS_AS_PART.search(source):
        parts = [{"type": "thinking", "thinking": thoughts}, {"type": "text", "text": content}]
        return {**message, "content": parts if content else parts[:1]}
    return message


def _in_parts(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message whose content is a list of parts; a picture is its marker in the text, as in llama-server."""
    content = message["content"]
    if not isinstance(content, str):
        return message
    return {**message, "content": [{"type": "text", "text": content}]}


def _called(message: dict[str, Any], objects: bool, content: str | None) -> dict[str, Any]:
    """Return a message with its calls in the form that a template reads."""
    if "tool_calls" not in message:
        return message
    calls = message["tool_calls"]
    if objects:
        functions = [
            {**each["function"], "arguments": _object(each["function"]["arguments"])}
            for each in calls
        ]
        calls = [{**call, "function": f} for call, f in zip(calls, functions, strict=True)]
    return {**message, "content": message["content"] or content, "tool_calls": calls}


def _with_calls_in_words(message: Message, form: CallFormat) -> Message:
    if not message.calls:
        return message
    text = message.text + written(message.calls, form)
    return Message(message.role, (TextPart(text),), message.thinking)


def _object(arguments: str) -> Any:
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments


def _with_system_in_turns(messages: Sequence[Message]) -> list[Message]:
    """Return messages of which no system message but the first is left: each is part of the turn before it.

    Behind an assistant's it is part of the next one, or a user's turn of its own.
    """
    done = list(messages[:1])
    waiting = ""
    for each in messages[1:]:
        if each.role == "system" and not waiting and done[-1].role != "assistant":
            done[-1] = _joined(done[-1], after=each.text)
        elif each.role == "system":
            waiting = _paragraphs(waiting, each.text)
        elif waiting and each.role != "assistant":
            done.append(_joined(each, before=waiting))
            waiting = ""
        else:
            done += [Message.user(waiting), each] if waiting else [each]
            waiting = ""
    return [*done, Message.user(waiting)] if waiting else done


def _joined(message: Message, *, before: str = "", after: str = "") -> Message:
    parts: list[Part] = [
        msgspec.structs.replace(each, text=_paragraphs(before, each.text, after))
        for each in message.parts
        if isinstance(each, ToolResult)
    ]
    if message.media:
        heads, ends = before and f"{before}\n\n", after and f"\n\n{after}"
        parts = [TextPart(heads), *message.parts, TextPart(ends)]
    return replace(
        message, parts=tuple(parts or [TextPart(_paragraphs(before, message.text, after))])
    )


def _paragraphs(*texts: str) -> str:
    return "\n\n".join(filter(None, texts))


def _with_system_in_first_user_turn(messages: Sequence[Message]) -> list[Message]:
    system, *rest = messages
    at = next((at for at, message in enumerate(rest) if message.role == "user"), None)
    if at is None:
        return [Message.user(system.text), *rest]
    return [*rest[:at], _joined(rest[at], before=system.text), *rest[at + 1 :]]
