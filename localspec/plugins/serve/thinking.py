"""How long a model is to think, under the names that clients of all kinds have for it: a switch, a budget, an effort.

Sources: the API references of OpenAI, Anthropic, DeepSeek, Z.ai, Moonshot, Alibaba and OpenRouter, and the servers llama.cpp,
vLLM, SGLang and Ollama.
"""

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from localspec.api import UsageError
from localspec.options import cut
from localspec.options.fields import KWARGS, kwargs_of, think_of
from localspec.plugins.serve.bodies import AnswerFields

_BUDGETS = (
    *("reasoning_budget_tokens", "thinking_budget", "thinking_token_budget", "reasoning_budget"),
    *("thinking_budget_tokens", "max_thinking_tokens", "max_reasoning_tokens"),
)
_APART = ("auto", "deepseek", "parsed")
"""The values of `reasoning_format` that have thoughts apart from the answer, as they always are here."""
_SHOWN = ("include_reasoning", "separate_reasoning", "reasoning_split")
_VARIABLES = "chat_template_kwargs"


class Thinking(msgspec.Struct):
    """Whether a model thinks, and how long, as Anthropic, DeepSeek and others have it; Z.ai's `clear_thinking` says whether it reads no earlier thoughts."""

    type: Literal["enabled", "adaptive", "auto", "disabled"] | None = None
    enabled: bool | None = None
    budget_tokens: int | None = None
    clear_thinking: bool | None = None


class Reasoning(msgspec.Struct):
    """How long a model thinks, as OpenAI's responses and OpenRouter have it."""

    effort: str | None = None
    enabled: bool | None = None
    max_tokens: int | None = None
    exclude: bool | None = None


class ThinkingFields(AnswerFields, kw_only=True):
    """Fields of every request that a chat template answers, for how to think before it."""

    reasoning_effort: str | None = None
    reasoning: Reasoning | bool | None = None
    thinking: Thinking | bool | None = None
    enable_thinking: bool | None = None
    think: bool | int | str | None = None
    reasoning_budget_tokens: int | None = None
    thinking_budget: int | None = None
    thinking_token_budget: int | None = None
    reasoning_budget: int | None = None
    thinking_budget_tokens: int | None = None
    max_thinking_tokens: int | None = None
    max_reasoning_tokens: int | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_format: str | None = None
    include_reasoning: bool | None = None
    separate_reasoning: bool | None = None
    reasoning_split: bool | None = None

    def think_wanted(self) -> str | int | None:
        """Return what `think` is by all of these; None where none says.

        Raises:
            UsageError: one is out of its range, or wants thoughts otherwise than apart from the answer.
        """
        self._require_thoughts_apart()
        if isinstance(self.think, str) and (self.think in ("on", "off") or self.think.isdecimal()):
            return self.think
        switches = [*self._switches()]
        effort_name, effort = next(self._efforts(), ("reasoning_effort", None))
        budget_name, budget = next(self._budgets(), ("reasoning_budget_tokens", None))
        variables = dict(self.chat_template_kwargs or {})
        if switches:
            if False in switches:
                variables["thinking"] = False
            else:
                variables.setdefault("enable_thinking", True)
        return think_of(effort, variables, budget, (effort_name, _VARIABLES, budget_name))

    def template_wanted(self) -> dict[str, Any]:
        """Return the options that a chat template reads, by all of these: how to think, and variables of its own.

        Raises:
            UsageError: see `think_wanted`.
        """
        variables = kwargs_of(self.chat_template_kwargs) or {}
        # True is what the templates do by themselves.
        if isinstance(self.thinking, Thinking) and self.thinking.clear_thinking is False:
            variables.setdefault("clear_thinking", False)
        return {"think": self.think_wanted(), KWARGS: variables or None}

    def effort(self) -> Iterator[tuple[str, str | None]]:
        """Yield what an interface has beside the usual names of an effort, the name first."""
        yield from ()

    def _switches(self) -> Iterator[bool]:
        for value in (self.enable_thinking, self.think, self.reasoning, self.thinking):
            if isinstance(value, bool):
                yield value
        for nested in (self.reasoning, self.thinking):
            if isinstance(nested, Reasoning | Thinking) and nested.enabled is not None:
                yield nested.enabled
        if isinstance(self.thinking, Thinking) and self.thinking.type is not None:
            yield self.thinking.type != "disabled"

    def _efforts(self) -> Iterator[tuple[str, str]]:
        nested = self.reasoning.effort if isinstance(self.reasoning, Reasoning) else None
        word = self.think if isinstance(self.think, str) else None
        usual = (("reasoning_effort", self.reasoning_effort), ("reasoning.effort", nested))
        for name, value in (*self.effort(), *usual, ("think", word)):
            if value is not None:
                yield name, value

    def _budgets(self) -> Iterator[tuple[str, int]]:
        if isinstance(self.thinking, Thinking) and self.thinking.budget_tokens is not None:
            yield "thinking.budget_tokens", self.thinking.budget_tokens
        if isinstance(self.reasoning, Reasoning) and self.reasoning.max_tokens is not None:
            yield "reasoning.max_tokens", self.reasoning.max_tokens
        for name in _BUDGETS:
            value = getattr(self, name)
            if value is not None:
                yield name, value
        if isinstance(self.think, int) and not isinstance(self.think, bool):
            yield "think", self.think

    def _require_thoughts_apart(self) -> None:
        if self.reasoning_format is not None and self.reasoning_format not in _APART:
            raise UsageError(
                f"reasoning_format is {cut(self.reasoning_format)}: thoughts come apart from the answer, "
                f"give {' or '.join(_APART)}, or leave it out"
            )
        hidden = [name for name in _SHOWN if getattr(self, name) is False]
        if isinstance(self.reasoning, Reasoning) and self.reasoning.exclude:
            hidden.append("reasoning.exclude")
        if hidden:
            raise UsageError(
                f"{hidden[0]} would hide thoughts, which is not supported: remove it, or switch thinking off"
            )


THINKING = {*ThinkingFields.__struct_fields__} - {*AnswerFields.__struct_fields__}
"""The names of these fields."""
