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
from os import urandom
from os.path import commonprefix
from types import MappingProxyType
from typing import Any

from localspec.calls import Tool
from localspec.chat.jinja import JinjaError, render
from localspec.chat.template_rules import (
    GAP,
    NOTHING_SAID,
    RESCUES,
    RULES,
    FitRule,
    Messages,
    Outline,
)
from localspec.chat.template_values import (
    filled,
    in_parts,
    reads_responses,
    tool_values,
    values_of,
    with_responses,
    with_thoughts,
)
from localspec.chat.template_variables import require_read
from localspec.chat.thinking import thinking_tags
from localspec.chat.thinking_plan import ThinkingPlan, thinking_plan
from localspec.chat.turns import complete
from localspec.display import printable_line
from localspec.errors import TemplateError
from localspec.messages import Message, TextPart, ToolCall, ToolResult
from localspec.options import ReplyOptions

_PROBE = "localspec-probe"  # a content that no template writes by itself
_USER = "localspec-user"
_UNKNOWN: tuple[bool, str | None] = (False, _PROBE)
_CALL = ToolCall("callOne01", _PROBE, "{}")
_DONE = Message("tool", (ToolResult("callOne01", "done"),))
_NO_PARAMETERS = {"type": "object", "properties": {}, "required": []}
_PARTS = re.compile(r"""['"]text['"]|\.text\b""")
_ANCHOR = "".join(chr(ord("a") + each % 26) for each in urandom(16))
"""In front of a name in a prompt: no content can know it."""
COMPLETE, WORDS = "results and arguments in order", "words before calls"
THOUGHTS_APART = "thoughts apart from words before calls"
SCHEMAS = "schemas with all fields"
"""Names of what makes a conversation fit beside the rules."""
_HELLO, _THOUGHT = "localspec-hello", "localspec-thought"
_OPENED = re.compile(r"[<\[][^<>\[\]\s]*$")
_DIGITS = re.compile(r"\d+")
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
        for_tools: the template for conversations with tools, under `tokenizer.chat_template.tool_use`; None where the
            file has one for all.

    Attributes:
        thinking: how a reply is to think, see `thinking_as`.
        variables: what else it reads of a user's, see `asked`.

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
        for_tools: str | None = None,
    ) -> None:
        if not source or not source.strip():
            raise TemplateError(
                f"{model} has no chat template: it only goes on with plain texts, as run --raw and /v1/completions do"
            )
        self.source = source
        self._model = model
        self._reads_responses = reads_responses(source)
        self._think: str | None = None
        self.variables: Mapping[str, Any] = {}
        # Thinking that can be switched off is on, as in llama-server.
        self._constants = {"bos_token": bos_token, "eos_token": eos_token, "enable_thinking": True}
        self._clock = clock
        self._late: TemplateError | None = None
        self._render(None)
        self._takes: dict[str, bool] = {}
        self._calls: tuple[bool, str | None] | None = _UNKNOWN
        self._takes_parts: bool | None = None
        self._has_looked = False  # for what calls begin with
        self._call_head: re.Pattern[str] | None = None
        self.thinking = ThinkingPlan()
        self._views: dict[str, ChatTemplate] = {}
        self._for_tools: ChatTemplate | None = None
        if for_tools and for_tools.strip():
            self._for_tools = ChatTemplate(
                for_tools, bos_token, eos_token, model=model, clock=clock
            )

    def offering(self, *, tools: bool) -> "ChatTemplate":
        """Return the template for conversations with tools, or without."""
        if not tools or self._for_tools is None:
            return self
        view = self._for_tools.thinking_as(self._think)
        return view.with_variables(self.variables) if self.variables else view

    def asked(self, options: ReplyOptions) -> "ChatTemplate":
        """Return this template for a reply: how it thinks, and what else a user sets.

        Raises:
            UsageError: the template does not read a variable.
        """
        view = self.thinking_as(options.think)
        if options.template_kwargs is None:
            return view
        key = f"{options.think} {options.template_kwargs}"
        if key not in self._views:
            given, sources = options.template_variables, [self.source]
            sources += [] if self._for_tools is None else [self._for_tools.source]
            require_read(printable_line(self._model), given, "\n".join(sources))
            self._keep(key, view.with_variables(given))
        return self._views[key]

    def with_variables(self, variables: Mapping[str, Any]) -> "ChatTemplate":
        """Return this template with variables of a user, which are not looked at."""
        key = f"with {variables}"
        if key not in self._views:
            view = copy(self)
            view.variables = variables
            self._keep(key, view)
        return self._views[key]

    def _keep(self, key: str, view: "ChatTemplate") -> None:
        if len(self._views) == _MOST_VIEWS:
            self._views.clear()
        self._views[key] = view

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
            view._think = think  # noqa: SLF001 - it is this one
            self._keep(think, view)
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
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """Return the text of a conversation, by default up to where the assistant's reply begins.

        What a template loses or refuses is written as it takes it, see `template_rules`: nothing that was said is left out.

        Args:
            messages: the conversation, system prompt first; a template reads them as `to_json` has them, and
                arguments of calls as an object or as a text, whichever it writes as JSON.
            tools: what the model may call.
            add_generation_prompt: end with the header of the assistant's turn.
            variables: what else the template reads; None is `variables` as they are.

        Raises:
            TemplateError: the template refuses a message even so, or leaves out a picture or a sound, or fails, or takes
                too long or too much.
        """
        given = self.variables if variables is None else variables
        text = self.fit(messages, given, tools=tools, add_generation_prompt=add_generation_prompt)[
            0
        ]
        media = [part for each in messages for part in each.media]
        written = text.lower() if media else ""
        for part in media:
            if part.marker not in written:
                name = printable_line(part.name)
                raise TemplateError(
                    f"{self._model}'s chat template leaves out {name}: start a conversation without it"
                )
        return text

    def as_written(
        self, messages: Messages, *, tools: Sequence[Tool] = (), add_generation_prompt: bool = True
    ) -> str:
        """Return the text of a conversation as the template itself has it, by no rule; raises as `render` does."""
        variables = {**tool_values(tools), "add_generation_prompt": add_generation_prompt}
        return self._run(messages, variables)

    def fit(
        self,
        messages: Messages,
        given: Mapping[str, Any] = MappingProxyType({}),
        *,
        tools: Sequence[Tool] = (),
        add_generation_prompt: bool = True,
    ) -> tuple[str, tuple[str, ...]]:
        """Return the text of a conversation, and the names of the rules that made it fit, see `render`."""
        variables = {**given, "add_generation_prompt": add_generation_prompt}
        try:
            return self._fitted(messages, tools, variables)
        except TemplateError as error:
            if self._late is not None:
                raise
            raise self._refusal(messages, tools, error) from error

    def _fitted(
        self, messages: Messages, tools: Sequence[Tool], variables: Mapping[str, object]
    ) -> tuple[str, tuple[str, ...]]:
        whole = complete(messages)
        fitted, names = self._by_rules(whole)
        if self._needs_words(fitted):
            names = (*names, WORDS)
        if tuple(messages) != whole:
            names = (COMPLETE, *names)
        attempt = {**tool_values(tools), **variables}
        try:
            return self._run(fitted, attempt), names
        except TemplateError:
            if self._late is not None:
                raise
            if tools:
                attempt = {**tool_values(filled(tools)), **variables}
                with suppress(TemplateError):
                    return self._run(fitted, attempt), (*names, SCHEMAS)
            for rule in RESCUES:
                if rule.concerns(Outline.of(fitted)):
                    fitted, more = self._by_rules(rule.change(fitted, self))
                    names = (*names, rule.name, *more)
                    with suppress(TemplateError):
                        return self._run(fitted, attempt), names
            raise

    def _by_rules(self, messages: Messages) -> tuple[Messages, tuple[str, ...]]:
        names, outline = list[str](), Outline.of(messages)
        for rule in RULES:
            if rule.concerns(outline) and not self._follows(rule):
                messages = rule.change(messages, self)
                outline = Outline.of(messages)
                names.append(rule.name)
        return messages, tuple(names)

    def _follows(self, rule: FitRule) -> bool:
        if rule.name not in self._takes:
            self._takes[rule.name] = rule.takes(self)
        return self._takes[rule.name]

    def reads(self, messages: Messages, words: Sequence[str]) -> bool:
        """Return whether a conversation is rendered, and these words are in its text, in this order."""
        tools: Sequence[Tool] = ()
        if any(each.calls for each in messages):
            tools = [Tool(call.name, _NO_PARAMETERS) for each in messages for call in each.calls]
        try:
            text = self._run(messages, {**tool_values(tools), "add_generation_prompt": True})
        except TemplateError:
            return False
        at = max(0, text.find(messages[0].text)) if messages[0].role == "user" else 0
        for each in words:
            at = text.find(each, at)
            if at < 0:
                return False
            at += len(each)
        return True

    @property
    def writes_calls(self) -> bool:
        """Whether calls are rendered at all."""
        return self._form_of_calls() is not None

    def _refusal(
        self, messages: Messages, tools: Sequence[Tool], error: TemplateError
    ) -> TemplateError:
        """Return an error that names the first message that the template does not take."""
        least, most = 0, len(messages)
        while most - least > 1:
            middle = (least + most) // 2
            ends = {"add_generation_prompt": messages[middle - 1].role != "assistant"}
            try:
                self._fitted(messages[:middle], tools, ends)
                least = middle
            except TemplateError as earlier:
                most, error = middle, earlier
        reason = str(error).partition(": ")[2] or str(error)
        if tools and most == 1:
            with suppress(TemplateError):
                self._fitted(messages[:1], (), {"add_generation_prompt": True})
                return TemplateError(
                    f"{self._model}'s chat template refuses the tools: {reason}; give their schemas types, properties and descriptions"
                )
        role = messages[most - 1].role if messages else "none"
        return TemplateError(
            f"{self._model}'s chat template refuses message {most} ({role}): {reason}; change that message, or leave it out"
        )

    def _render(self, variables: Mapping[str, object] | None) -> str:
        if self._late is not None:  # as it would again
            raise self._late
        now = self._clock()
        if variables is not None:
            # As llama.cpp writes days.
            days = {"date_string": f"{now:%d %b %Y}", "datetime": f"{now:%b %d %Y}"}
            variables = {**self._constants, **days, **self.thinking.variables, **variables}
        try:
            return render(self.source, variables, now)
        except JinjaError as error:
            where = f" (line {error.line})" if error.line else ""
            reason = f"{printable_line(str(error))[:300]}{where}"
            remedy = "; use another file of this model" if variables is None or error.late else ""
            failure = TemplateError(f"{self._model}'s chat template failed: {reason}{remedy}")
            self._late = failure if error.late else None
            raise failure from error

    def _run(self, messages: Messages, variables: Mapping[str, object]) -> str:
        """Return the text of messages as they are."""
        if self._needs_words(messages):
            text = self._with_words(messages, variables)
        else:
            text = self._render_values(self._values(messages), variables)
        return self._without_gaps(text) if GAP in text else text

    def _values(self, messages: Messages) -> list[dict[str, Any]]:
        form = self._form_of_calls() if any(each.calls for each in messages) else None
        values = values_of(messages, form)
        if "reasoning_content" not in self.source:
            values = self._with_thoughts(values)
        if self._reads_responses:
            values = with_responses(values)
        return values

    def _with_thoughts(self, values: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if THOUGHTS_APART not in self._takes:
            self._takes[THOUGHTS_APART] = True  # while that is found out
            turn = Message("assistant", (TextPart(_USER), _CALL), _THOUGHT)
            said = [Message.user(_HELLO), turn, _DONE]
            self._takes[THOUGHTS_APART] = self.reads(said, [_THOUGHT, _USER])
        joined = not self._takes[THOUGHTS_APART]
        return [with_thoughts(each, self.source, joined=joined) for each in values]

    def _render_values(self, values: list[dict[str, Any]], variables: Mapping[str, object]) -> str:
        if self._takes_parts is None:
            self._takes_parts = False  # while that is found out
            self._takes_parts = self._wants_parts()
        if self._takes_parts:
            values = [in_parts(each) for each in values]
        return self._render({"messages": values, **variables})

    def _whole(self, messages: Messages) -> str:
        """Return the text of messages that no answer follows."""
        return self._render_values(self._values(messages), {"add_generation_prompt": False})

    def _needs_words(self, messages: Messages) -> bool:
        """Return whether words beside calls would be lost, or stand behind them."""
        if self._takes.get(WORDS) or not any(
            each.role == "assistant" and each.calls and each.text for each in messages
        ):
            return False
        if WORDS not in self._takes:
            self._takes[WORDS] = True  # while that is found out
            turn = Message("assistant", (TextPart(_USER), _CALL))
            said = [Message.user(_HELLO), turn, _DONE]
            self._takes[WORDS] = self.reads(said, [_USER, _PROBE])
        return not self._takes[WORDS]

    def _with_words(self, messages: Messages, variables: Mapping[str, object]) -> str:
        """Return the text of messages, words in front of the calls beside them: some templates write them behind, or not at all."""
        words = [each.text for each in messages if each.calls and each.text]
        head, pieces = self._head_of_calls(), list[str]()
        if head is not None:
            anchored = [_anchored(each) if each.calls and each.text else each for each in messages]
            pieces = head.split(self._render_values(self._values(anchored), variables))
        if len(pieces) != 2 * len(words) + 1:  # its calls are turns of their own
            parted = [part for each in messages for part in _parted(each)]
            return self._render_values(self._values(parted), variables)
        said = zip(
            pieces[::2], [*(f"{each}" for each in words), ""], ["", *pieces[1::2]], strict=True
        )
        return "".join(head + before + word for before, word, head in said).replace(_ANCHOR, "")

    def _head_of_calls(self) -> re.Pattern[str] | None:
        """Return the pattern of what stands before the name of a turn's first call, an anchor behind it; None where words have tags of their own."""
        if not self._has_looked:
            self._has_looked = True
            turns = (Message("assistant", (_CALL,)), Message.assistant(_USER))
            called, answered = (self._whole([Message.user(_HELLO), each]) for each in turns)
            before = _OPENED.sub("", commonprefix((called, answered)))  # noqa: RUF071  # of texts
            head = called[len(before) : called.find(_PROBE, len(before))]
            if not (head.strip() and answered.startswith(_USER, len(before))):
                return None
            numbered = _DIGITS.sub("0", head.replace("callOne01", _ANCHOR))
            pattern = re.escape(numbered).replace("0", r"\d+")
            pattern = pattern.replace(re.escape(_ANCHOR), r"[^\n]{0,100}?")
            self._call_head = re.compile(f"({pattern}){_ANCHOR}")
        return self._call_head

    def _without_gaps(self, text: str) -> str:
        """Return a prompt without the turns that only stood between others; where those are not known, they are nearly empty."""
        said = [Message.user("hello"), Message.assistant(GAP)]
        with suppress(TemplateError):
            before, after = self._whole(said[:1]), self._whole(said)
            if after.startswith(before):
                text = text.replace(after[len(before) :], "")
        return text.replace(GAP, NOTHING_SAID)

    def _wants_parts(self) -> bool:
        """Return whether contents are written where they are lists of parts, and left out where they are texts."""
        said = [Message.user(_PROBE)]
        if not _PARTS.search(self.source) or self.reads(said, [_PROBE]):
            return False
        self._takes_parts = True
        return self.reads(said, [_PROBE])

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
        values = values_of(
            [Message.user("hello"), Message("assistant", (call,))], (objects, content)
        )
        tools = tool_values([Tool(_PROBE, _NO_PARAMETERS)])
        try:
            text = self._render_values(values, {**tools, "add_generation_prompt": False})
        except TemplateError:  # this is not what it wants
            return False
        written = text.replace(str({_PROBE: _PROBE}), "").replace(json.dumps(call.arguments), "")
        return written.count(_PROBE) > 2  # beside the tool's own name


def _parted(message: Message) -> list[Message]:
    """Return a message that says something and calls as two."""
    if not message.calls or not message.text:
        return [message]
    words = tuple(each for each in message.parts if not isinstance(each, ToolCall))
    return [
        Message(message.role, words, message.thinking),
        Message(message.role, tuple(message.calls)),
    ]


def _anchored(message: Message) -> Message:
    """Return a message without its words, the name of its first call anchored."""
    first, *others = message.calls
    first = ToolCall(first.id, _ANCHOR + first.name, first.arguments)
    return Message(message.role, (first, *others), message.thinking)
