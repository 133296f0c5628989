"""SamplingParams and ReplyOptions: how one reply is made."""

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from localspec.errors import UsageError
from localspec.options.option import Option, check, declared

GRAMMARS = ("grammar", "json_schema", "regex", "lark")
"""The options that say what an answer has to look like; they cannot be combined."""
PASSAGE_TOKENS, LEAST_PASSAGE_TOKENS = 1500, 600
"""What the passages of one question may take of the context; the least holds one passage."""
# Far beyond any logit, and far from where float32 would lose the logits beside it.
_MOST = 10_000
FORBIDDEN = -float(_MOST)
"""The bias of a token that must not be chosen, whatever its logit is."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a row of logits becomes a choice.

    Args:
        temperature: 0 takes the likeliest token; 1 leaves the model's distribution as it is.
        top_k: keep this many of the likeliest tokens; 0 keeps all.
        top_p: keep the smallest set of likeliest tokens that holds this much probability; 1 keeps all.
        min_p: drop tokens less likely than this fraction of the likeliest; 0 keeps all.
        repeat_penalty: divide positive and multiply negative logits of recent tokens; 1 is off.
        presence_penalty: subtract this from the logits of recent tokens; 0 is off.
        frequency_penalty: subtract this for each recent occurrence; 0 is off.
        penalty_last_n: how many tokens count as recent, prompt included; 0 switches penalties off.
        logit_bias: (token id, bias) pairs added to the logits before everything else; `FORBIDDEN` rules a token out.

    Raises:
        UsageError: a value is of the wrong type, or out of its range.
    """

    temperature: float = declared(
        0.8,
        Option(
            "Randomness; 0 always picks the likeliest token. Default: the model's own, or 0.8.",
            metavar="T",
            group="sampling",
            key=True,
            least=0,
            most=sys.float_info.max,
            range_text="0 or more, and finite",
        ),
    )
    top_k: int = declared(
        40,
        Option(
            "Sample from the K likeliest tokens; 0 is off. Default: the model's own, or 40.",
            metavar="K",
            group="sampling",
            key=True,
            least=0,
            range_text="0 (off) or more",
        ),
    )
    top_p: float = declared(
        0.95,
        Option(
            "Sample from the likeliest tokens that add up to P; 1 is off. Default: the model's own, or 0.95.",
            metavar="P",
            group="sampling",
            key=True,
            least=0,
            above=True,
            most=1,
            range_text="above 0, and 1 (off) at most",
        ),
    )
    min_p: float = declared(
        0.05,
        Option(
            "Drop tokens less likely than P times the likeliest; 0 is off. Default: the model's own, or 0.05.",
            metavar="P",
            group="sampling",
            key=True,
            least=0,
            most=1,
            range_text="between 0 (off) and 1",
        ),
    )
    repeat_penalty: float = declared(
        1.0,
        Option(
            "Penalise recent tokens; 1 is off. Default: the model's own, or 1.",
            metavar="R",
            group="sampling",
            key=True,
            least=1 / _MOST,
            most=_MOST,
            range_text=f"from 1e-4 to {_MOST}",
        ),
    )
    presence_penalty: float = declared(
        0.0,
        Option(
            "Penalise tokens that have occurred; 0 is off.",
            least=-_MOST,
            most=_MOST,
            range_text=f"within ±{_MOST}",
        ),
    )
    frequency_penalty: float = declared(
        0.0,
        Option(
            "Penalise tokens for each time that they have occurred; 0 is off.",
            least=-_MOST,
            most=_MOST,
            range_text=f"within ±{_MOST}",
        ),
    )
    penalty_last_n: int = declared(
        64,
        Option(
            "How many of the last tokens are penalised; 0 is off.",
            least=0,
            range_text="0 (off) or more",
        ),
    )
    logit_bias: tuple[tuple[int, float], ...] = declared(
        (), Option(takes="an object of token ids and numbers")
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
    """How one reply is made.

    Args:
        sampling: how a row of logits becomes a choice.
        seed: the same seed gives the same text; None draws one, which the reply reports.
        max_tokens: most tokens to generate; None goes on until the model ends or the context is full.
        stop_loops: end where the same tokens come over and over, see `LoopGuard`.
        stop: texts that end the answer and are not part of it.
        grammar: what the answer has to look like, in GBNF; thoughts before it are free.
        json_schema: a JSON schema that the answer is to be valid under, as text or as `json.loads` gives it;
            kept as text.
        regex: a regular expression in Rust's syntax that matches the whole answer.
        lark: what the answer has to look like, in llguidance's variant of Lark.

    Raises:
        UsageError: a value is of the wrong type, or out of its range, or two of `GRAMMARS` are given. Whether one is
            sound is seen when it is read: by flags and lines at once, otherwise when the reply begins.
    """

    sampling: SamplingParams = field(default_factory=SamplingParams)
    seed: int | None = declared(
        None, Option("Same seed, same text. Default: random.", metavar="S", group="sampling")
    )
    max_tokens: int | None = declared(
        None,
        Option(
            "Stop after N tokens.",
            short="n",
            metavar="N",
            group="sampling",
            key=True,
            least=1,
        ),
    )
    stop: tuple[str, ...] = declared(
        (),
        Option(
            "Stop before this text; can be repeated.",
            metavar="TEXT",
            group="structure",
            takes="a text, or a list of texts",
        ),
    )
    grammar: str | None = declared(
        None,
        Option("Make the answer follow this GBNF grammar.", metavar="FILE", group="structure"),
    )
    json_schema: str | Mapping[str, Any] | bool | None = declared(
        None,
        Option(
            "Answer with JSON that fits this schema; '{}': any.",
            metavar="FILE|JSON",
            group="structure",
            takes="an object",
        ),
    )
    regex: str | None = declared(
        None,
        Option(
            "Make the answer match this regular expression.",
            metavar="REGEX",
            group="structure",
        ),
    )
    lark: str | None = declared(
        None,
        Option("Make the answer follow this Lark grammar.", metavar="FILE", group="structure"),
    )
    stop_loops: bool = declared(
        False,
        Option(
            "Stop an answer that repeats itself.",
            group="sampling",
            key=True,
        ),
    )

    def __post_init__(self) -> None:
        check(self)
        if "" in self.stop:
            raise UsageError('a stop string is "": give it at least one character')
        given = [name for name in GRAMMARS if getattr(self, name) is not None]
        if len(given) > 1:
            raise UsageError(f"{' and '.join(given)} cannot be combined: give one of them")
        if self.json_schema is not None and not isinstance(self.json_schema, str):
            object.__setattr__(self, "json_schema", _as_text(self.json_schema))

    @property
    def answer_grammar(self) -> tuple[str, str] | None:
        """What binds the answer: which of `GRAMMARS`, and its text; None where the answer is free."""
        texts = ((name, getattr(self, name)) for name in GRAMMARS)
        return next(((name, text) for name, text in texts if text is not None), None)


def _as_text(schema: object) -> str:
    try:
        return json.dumps(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"json_schema is not valid JSON: {' '.join(str(error).split())[:120]}"
        ) from None
