"""SamplingParams and ReplyOptions: how one reply is made."""

import json
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from localspec.errors import UsageError
from localspec.options.option import as_object, check, cut, option

GRAMMARS = ("grammar", "json_schema", "regex", "lark")
"""The options that say what an answer has to look like; they cannot be combined."""
PASSAGE_TOKENS, LEAST_PASSAGE_TOKENS = 1500, 600
"""What the passages of one question may take of the context; the least holds one passage."""
# Far beyond any logit, and far from where float32 would lose the logits beside it.
_MOST = 10_000
THINK = ("on", "off", "low", "medium", "high")
"""How a reasoning model may think; a number is the most tokens of its thoughts."""
THINK_VARIABLES = ("enable_thinking", "thinking", "reasoning_effort", "thinking_budget")
"""Variables of templates that `think` sets."""
_OWN_NAMES = (
    "messages tools functions documents add_generation_prompt bos_token eos_token date_string datetime strftime_now"
    " raise_exception loop self"
)
OWN_VARIABLES = frozenset(_OWN_NAMES.split())
"""Those that say the conversation, the model's file and the clock."""
_VARIABLE = re.compile(r"[A-Za-z_]\w{0,63}", re.ASCII)
_NO_SENSE = "many answers make little sense"
_SENSIBLE = {
    "temperature": (0, 2, f"{_NO_SENSE}; 0 to 1.5 is usual"),
    "repeat_penalty": (0.8, 2, f"{_NO_SENSE}; 1 to 1.3 is usual"),
    "presence_penalty": (-2, 2, f"{_NO_SENSE}; 0 to 2 is usual"),
    "frequency_penalty": (-2, 2, f"{_NO_SENSE}; 0 to 2 is usual"),
    "top_p": (0.05, 1, "nearly always the likeliest token is chosen; 0.8 to 1 is usual"),
    "min_p": (0, 0.5, "nearly always the likeliest token is chosen; 0 to 0.1 is usual"),
    "max_tokens": (1, 1 << 24, "no context holds an answer; leave it unset for no limit"),
}
FORBIDDEN = -float(_MOST)
"""The bias of a token that must not be chosen, whatever its logit is."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a row of logits becomes a choice. What it says of a flag is its help.

    Args:
        temperature: Randomness; 0 always picks the likeliest token. Default: the model's own, or 0.8.
        top_k: Sample from the K likeliest tokens; 0 is off. Default: the model's own, or 40.
        top_p: Sample from the likeliest tokens whose probabilities add up to P; 1 is off. Default: the model's own, or 0.95.
        min_p: Drop tokens less likely than P times the likeliest; 0 is off. Default: the model's own, or 0.05.
        repeat_penalty: Penalise recent tokens; 1 is off. Default: the model's own, or 1.
        presence_penalty: Penalise tokens that have occurred; 0 is off.
        frequency_penalty: Penalise tokens for each time that they have occurred; 0 is off.
        penalty_last_n: How many of the last tokens are penalised; 0 is off.
        logit_bias: (token id, bias) pairs added to the logits before everything else; `FORBIDDEN` rules a token out.

    Raises:
        UsageError: a value is of the wrong type, or out of its range.
    """

    temperature: float = option(
        0.8, "sampling", "T", least=0, most=sys.float_info.max, range_text="0 or more, and finite"
    )
    top_k: int = option(40, "sampling", "K", least=0, range_text="0 (off) or more")
    top_p: float = option(
        0.95,
        "sampling",
        "P",
        least=math.ulp(0.0),
        most=1,
        range_text="above 0, and 1 (off) at most",
    )
    min_p: float = option(
        0.05, "sampling", "P", least=0, most=1, range_text="between 0 (off) and 1"
    )
    repeat_penalty: float = option(
        1.0, "sampling", "R", least=1 / _MOST, most=_MOST, range_text=f"from 1e-4 to {_MOST}"
    )
    presence_penalty: float = option(0.0, least=-_MOST, most=_MOST, range_text=f"within ±{_MOST}")
    frequency_penalty: float = option(0.0, least=-_MOST, most=_MOST, range_text=f"within ±{_MOST}")
    penalty_last_n: int = option(64, least=0, range_text="0 (off) or more")
    logit_bias: tuple[tuple[int, float], ...] = option(
        (), takes="an object of token ids and numbers"
    )

    def __post_init__(self) -> None:
        check(self)
        for token, bias in self.logit_bias:
            if token < 0 or not (bias == -math.inf or abs(bias) <= _MOST):
                raise UsageError(
                    f"logit_bias of token {token} is {bias}: "
                    f"give an id from 0 on and a number within ±{_MOST}, or -inf"
                )

    @property
    def penalises(self) -> bool:
        """Whether the tokens before a position change its logits."""
        return self.penalty_last_n > 0 and (
            self.repeat_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0
        )


@dataclass(frozen=True, slots=True)
class ReplyOptions:
    """How one reply is made. What it says of a flag is its help.

    Args:
        sampling: how a row of logits becomes a choice.
        seed: Same seed, same text. Default: random.
        max_tokens: Stop after N tokens.
        min_tokens: No token that ends the answer is chosen before so many; a stop text still ends it.
        ignore_eos: No token that ends the answer is ever chosen.
        stop_loops: Stop an answer that repeats itself.
        stop: Stop before this text; can be repeated.
        grammar: Make the answer follow this GBNF grammar.
        json_schema: Answer with JSON that matches this schema; '{}' is any JSON.
        regex: Make the answer match this regular expression.
        lark: Make the answer follow this Lark grammar.
        think: How a reasoning model thinks: on, off, low, medium, high, or at most N tokens. Default: the model's own.
        template_kwargs: Variables that the model's chat template reads, such as '{"preserve_thinking": true}'.

    Raises:
        UsageError: a value is of the wrong type, or out of its range, or two of `GRAMMARS` are given. Whether one is
            sound is seen when it is read: by flags and lines at once, otherwise when the reply begins.
    """

    sampling: SamplingParams = field(default_factory=SamplingParams)
    seed: int | None = option(
        None,
        *("sampling", "S"),
        key=False,
        takes="a whole number of at most 128 bits",
        least=0,
        range_text="0 or more; leave it out for a random one",
    )
    max_tokens: int | None = option(None, "sampling", "N", short="n", least=1)
    stop: tuple[str, ...] = option(
        (), "structure", "TEXT", key=False, takes="a text, or a list of texts"
    )
    grammar: str | None = option(None, "structure", "FILE", key=False)
    json_schema: str | Mapping[str, Any] | bool | None = option(
        None, "structure", "FILE|JSON", key=False, takes="an object"
    )
    regex: str | None = option(None, "structure", "REGEX", key=False)
    lark: str | None = option(None, "structure", "FILE", key=False)
    stop_loops: bool = option(False, "sampling", needs="stop_loops")
    think: str | None = option(
        None,
        *("sampling", "MODE|N"),
        choices=THINK,
        numbers=True,
        takes="on, off, low, medium, high or a number of tokens",
    )
    min_tokens: int = option(0, least=0)
    ignore_eos: bool = option(False)
    template_kwargs: str | None = option(
        None,
        *("sampling", "JSON"),
        is_object=True,
        takes="an object of the chat template's variables, such as '{\"preserve_thinking\": true}'",
    )

    def __post_init__(self) -> None:
        check(self)
        if self.template_kwargs is not None:
            variables = template_variables(self.template_kwargs)
            object.__setattr__(self, "template_kwargs", as_object(variables) if variables else None)
        if "" in self.stop:
            raise UsageError('a stop string is "": give it at least one character')
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise UsageError(
                f"min_tokens {self.min_tokens} and max_tokens {self.max_tokens} cannot be combined: raise the latter"
            )
        given = [name for name in GRAMMARS if getattr(self, name) is not None]
        if len(given) > 1:
            raise UsageError(f"{' and '.join(given)} cannot be combined: give one of them")
        if self.json_schema is not None and not isinstance(self.json_schema, str):
            object.__setattr__(self, "json_schema", _as_text(self.json_schema))

    @property
    def template_variables(self) -> dict[str, Any]:
        """`template_kwargs` as an object; empty without any."""
        return json.loads(self.template_kwargs) if self.template_kwargs else {}

    @property
    def answer_grammar(self) -> tuple[str, str] | None:
        """What binds the answer: which of `GRAMMARS`, and its text; None where the answer is free."""
        texts = ((name, getattr(self, name)) for name in GRAMMARS)
        return next(((name, text) for name, text in texts if text is not None), None)


def unusual(name: str, value: object) -> str:
    """Return what comes of a value that hardly anybody can mean; empty where it is a usual one."""
    least, most, result = _SENSIBLE.get(name, (0, 0, ""))
    if not result or not isinstance(value, int | float) or least <= value <= most:
        return ""
    where, bound = ("above", most) if value > most else ("below", least)
    return f"{where} a {name} of {bound}, {result}"


def template_variables(text: str) -> dict[str, Any]:
    """Return the variables of a chat template that an object gives, as a text of JSON.

    Raises:
        UsageError: a name is none of a variable, or is set by localspec.
    """
    given: dict[str, Any] = json.loads(text)
    for name in given:
        if name in THINK_VARIABLES:
            raise UsageError(f"template_kwargs has {name}: set think instead")
        if name in OWN_VARIABLES or not _VARIABLE.fullmatch(name):
            raise UsageError(f"template_kwargs has {cut(name)}, which cannot be set: remove it")
    return given


def _as_text(schema: object) -> str:
    try:
        return json.dumps(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"json_schema is not valid JSON: {' '.join(str(error).split())[:120]}"
        ) from None
