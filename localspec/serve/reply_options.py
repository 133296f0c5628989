"""What a body of any interface says of how to answer, laid over what the server was started with."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec

from localspec.calls import Tool
from localspec.errors import UsageError
from localspec.grammar import require_sound
from localspec.options import ReplyOptions
from localspec.options.fields import FIELDS, FORMAT, schema_of, with_fields
from localspec.options.reply import GRAMMARS


class SamplingFields(msgspec.Struct):
    """What all interfaces take."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repeat_penalty: float | None = None
    seed: int | None = None


async def reply_options(
    body: msgspec.Struct, usual: ReplyOptions, limit: int | None, **fields: Any
) -> ReplyOptions:
    """Return how to answer: as a body says, and else as usual. A schema that cannot be enforced is loosened, unless it is strict.

    Args:
        body: its fields that are options count.
        usual: how to answer where it says nothing.
        limit: most tokens of the answer, where less than none is no limit; editors want none to have a prompt read
            ahead, and one is made, see `Service.reply`.
        fields: what the interface calls otherwise.

    Raises:
        UsageError: a value is wrong, or what the answer has to look like cannot be enforced.
    """
    given = {name: getattr(body, name, None) or None for name in ("stop", "logit_bias")}
    given = {**{name: getattr(body, name, None) for name in FIELDS}, **given, **fields}
    form = given.get(FORMAT)
    if form == {} or (
        isinstance(form, dict)
        and form.get("type") == "text"
        and any(given.get(each) is not None for each in GRAMMARS)
    ):
        given[FORMAT] = None
    given["max_tokens"] = None if limit is None or limit < 0 else max(1, limit)
    options = with_fields(usual, given)
    if limit is not None and limit < 0:
        options = replace(options, max_tokens=None)
    if options.answer_grammar is None:
        return options
    schema, strict = (None, True) if given[FORMAT] is None else schema_of(given[FORMAT])
    for wider in (
        [] if schema is None or strict else [_without_unique_items(schema), _loosened(schema)]
    ):
        with suppress(UsageError):
            await asyncio.to_thread(require_sound, options)
            return options
        options = replace(options, json_schema=wider)
    await asyncio.to_thread(require_sound, options)
    return options


def _without_unique_items(schema: Any) -> Any:
    """Return a schema without what says that no item comes twice, which is rarely enforceable: a set in Python has it."""
    if isinstance(schema, dict):
        return {
            name: _without_unique_items(each)
            for name, each in schema.items()
            if (name, each) != ("uniqueItems", True)
        }
    return [_without_unique_items(each) for each in schema] if isinstance(schema, list) else schema


def _loosened(schema: Any) -> Any:
    """Return the schema of an object with the same properties, of which each may be anything of its type."""
    from localspec.grammar.call_grammar import loosened  # noqa: PLC0415 - few schemas need it

    return loosened(Tool("answer", schema if isinstance(schema, dict) else {})).parameters
