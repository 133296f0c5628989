"""A model's own chat template, rendered as Hugging Face and llama.cpp render it.

A template comes out of a model file, so it is a stranger's program: it runs in jinja2's immutable sandbox, with a
bound on its source and a budget for all that it does, see `dialect`. Knows no tokens.

Source: `transformers/utils/chat_template_utils.py` for the dialect, llama.cpp `common/chat.cpp` for the variables.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from jinja2 import Template

from localspec.chat.dialect import Dialect
from localspec.display import printable_line
from localspec.errors import TemplateError
from localspec.messages import Message, TextPart, to_json

MAX_SOURCE_CHARS = 1 << 16
"""Twice as much as the longest template of a known model."""

_PROBE = "localspec-probe"  # a content that no template writes by itself


def _now() -> datetime:
    return datetime.now().astimezone()


class ChatTemplate:
    """Turns messages into the text that a model was trained to continue.

    Args:
        source: the template, as a GGUF has it under `tokenizer.chat_template`; None or empty where it has none.
        bos_token: text of the BOS token, "" where the vocabulary has none.
        eos_token: likewise for EOS.
        model: how errors call the model.
        clock: what `strftime_now` reads.

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
        if len(source) > MAX_SOURCE_CHARS:
            raise TemplateError(
                f"{model}'s chat template has {len(source)} characters, more than {MAX_SOURCE_CHARS}: use --raw"
            )
        self.source = source
        self._model = model
        self._constants = {"bos_token": bos_token, "eos_token": eos_token}
        self._template = self._compiled(source, clock)
        self._takes_system: bool | None = None

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        enable_thinking: bool = True,
    ) -> str:
        """Return the text of a conversation, by default up to where the assistant's reply begins.

        A template that refuses a system message, or passes over it in silence, gets the system text in front of the
        first user turn, a blank line between: what Gemma's makers and llama.cpp do, rather than to lose it.

        Args:
            messages: the conversation, system prompt first; a template reads them as `to_json` has them.
            add_generation_prompt: end with the header of the assistant's turn.
            enable_thinking: read by the templates of models whose thinking can be switched off; True unless
                asked otherwise, as in llama-server.

        Raises:
            TemplateError: the template refuses these messages, or fails, or grows out of bounds.
        """
        variables = {
            "add_generation_prompt": add_generation_prompt,
            "enable_thinking": enable_thinking,
        }
        if messages and messages[0].role == "system" and not self._system_is_read():
            messages = _with_system_in_first_user_turn(messages)
        return self._run(messages, variables)

    def _compiled(self, source: str, clock: Callable[[], datetime]) -> Template:
        try:
            return Dialect(clock).from_string(source)
        except (
            Exception
        ) as error:  # a stranger's program: jinja2 lets some ValueErrors through as they are
            raise self._failure(error) from error

    def _system_is_read(self) -> bool:
        if self._takes_system is None:
            variables = {"add_generation_prompt": True, "enable_thinking": True}
            try:
                text = self._run([Message.system(_PROBE), Message.user("hello")], variables)
            except TemplateError:
                text = ""
            self._takes_system = _PROBE in text
        return self._takes_system

    def _run(self, messages: Sequence[Message], variables: Mapping[str, object]) -> str:
        # `tools` and `documents` stay undefined, as in llama.cpp: templates for tool use iterate over them unasked
        context = {"messages": [to_json(m) for m in messages], **self._constants, **variables}
        try:
            return self._template.render(context)
        except Exception as error:  # a template may raise whatever Python can
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> TemplateError:
        reason = printable_line(str(error))[:300] or type(error).__name__
        line = getattr(error, "lineno", None)
        where = f" (line {line})" if line else ""
        return TemplateError(
            f"{self._model}'s chat template failed: {reason}{where}; use --raw to go without it"
        )


def _with_system_in_first_user_turn(messages: Sequence[Message]) -> list[Message]:
    system, *rest = messages
    at = next((at for at, message in enumerate(rest) if message.role == "user"), None)
    if at is None:
        return [Message.user(system.text), *rest]
    text = "\n\n".join(filter(None, (system.text, rest[at].text)))
    return [*rest[:at], replace(rest[at], parts=(TextPart(text),)), *rest[at + 1 :]]
