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
        grammar: what the answer has to look like, in GBNF; thoughts before it are free.
        json_schema: a JSON schema that the answer is to be valid under, as text or as `json.loads` gives it;
            kept as text.

    Raises:
        UsageError: a value is out of its range, the grammar is wrong, or the schema cannot be kept.
    """

    sampling: SamplingParams = field(default_factory=SamplingParams)
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    grammar: str | None = None
    json_schema: str | dict[str, Any] | bool | None = None

    def __post_init__(self) -> None:
        if self.max_tokens is not None and self.max_tokens < 1:
            raise UsageError(f"max_tokens is {self.max_tokens}: it must be 1 or more")
        StopStrings(self.stop)
        if self.grammar is not None and self.json_schema is not None:
            raise UsageError("grammar and json_schema exclude each other: give one of them")
        if self.json_schema is not None and not isinstance(self.json_schema, str):
            object.__setattr__(self, "json_schema", _as_text(self.json_schema))
        _ = self.gbnf

    @property
    def gbnf(self) -> str | None:
        """The grammar that binds the answer; None where it is free."""
        if self.grammar is None and self.json_schema is None:
            return None
        # ruff: noqa: PLC0415 - most replies are free, and need none of it
        from localspec.structured.answer_grammar import schema_grammar, sound_grammar

        if self.grammar is not None:
            return sound_grammar(self.grammar)
        assert isinstance(self.json_schema, str), "kept as text"  # noqa: S101
        return schema_grammar(self.json_schema)


def _as_text(schema: object) -> str:
    try:
        return json.dumps(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"json_schema is no JSON: {' '.join(str(error).split())[:120]}") from None
