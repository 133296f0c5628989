"""ReplyOptions: how one reply is made."""

import json
from dataclasses import dataclass, field
from typing import Any

from localspec.chat.stop_strings import StopStrings
from localspec.decoding.sampling import SamplingParams
from localspec.errors import UsageError


@dataclass(frozen=True, slots=True)
class ReplyOptions:
    """How one reply is made.

    Args:
        sampling: how a row of logits becomes a choice.
        seed: the same seed gives the same text; None draws one, which the reply reports.
        max_tokens: most tokens to generate; None goes on until the model ends or the context is full.
        stop: texts that end the answer and are not part of it.
        json_schema: a JSON schema that the answer is to be valid under, as text or as `json.loads` gives it;
            kept as text. Thoughts before the answer are free, here and below.
        grammar: what the answer has to look like, in GBNF.
        regex: a regular expression, in Rust's syntax, that is to match the whole answer.
        lark: what the answer has to look like, in llguidance's variant of Lark.

    Raises:
        UsageError: a value is out of its range, or what the answer has to look like is wrong, cannot be kept, or is said twice.
    """

    sampling: SamplingParams = field(default_factory=SamplingParams)
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    json_schema: str | dict[str, Any] | bool | None = None
    grammar: str | None = None
    regex: str | None = None
    lark: str | None = None

    def __post_init__(self) -> None:
        if self.max_tokens is not None and self.max_tokens < 1:
            raise UsageError(f"max_tokens is {self.max_tokens}: it must be 1 or more")
        StopStrings(self.stop)
        if self.json_schema is not None and not isinstance(self.json_schema, str):
            object.__setattr__(self, "json_schema", _as_text(self.json_schema))
        if self.is_bound:
            # Most replies are free, and need none of it.
            from localspec.grammar import check  # noqa: PLC0415

            check(self)

    @property
    def is_bound(self) -> bool:
        """Whether something says what the answer has to look like."""
        return any(
            each is not None for each in (self.json_schema, self.grammar, self.regex, self.lark)
        )


def _as_text(schema: object) -> str:
    try:
        return json.dumps(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"json_schema is no JSON: {' '.join(str(error).split())[:120]}") from None
