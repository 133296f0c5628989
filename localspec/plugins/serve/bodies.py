"""Bodies of requests: their fields, and what they say of how to answer, laid over what the server was started with."""

import asyncio
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec
from starlette.requests import Request as HttpRequest

from localspec.api import ReplyOptions, UsageError
from localspec.calls import Tool
from localspec.errors import Busy
from localspec.grammar import require_sound
from localspec.options.fields import FIELDS, FORMAT, instead_of, schema_of, with_fields
from localspec.options.reply import GRAMMARS
from localspec.plugins.serve.http import TooLarge

MOST_BODY_BYTES = 16 << 20
"""Pictures and sounds not counted."""
MOST_LARGE_BYTES = 48 << 20
"""With them; a frame of the engine's holds the request."""
MOST_LARGE = 4
"""Bodies above `MOST_BODY_BYTES` at a time, so that memory is bounded."""
_MEDIA = re.compile(
    rb'(?:"(?:url|image_url|file_data|data)"\s*:|[\[,])\s*"(?:data:[\w.+/-]*;base64,)?[A-Za-z0-9+/=\\]{1024,}'
)
MOST_LOGPROBS = 20
_EXTRA = "extra_body"
_MOST_COUNTED = 1 << 53
_UNSUPPORTED: Mapping[str, Any] = {
    # llama.cpp's samplers
    **dict.fromkeys(
        ("mirostat", "xtc_probability", "dry_multiplier", "dynatemp_range", "samplers")
    ),
    **dict.fromkeys(("typical_p", "tfs_z"), 1),
    "top_n_sigma": -1,
    # what ends an answer, and what it is made of
    **dict.fromkeys(("stop_token_ids", "include_stop_str_in_output")),
    **dict.fromkeys(("bad_words", "allowed_token_ids", "use_beam_search", "echo", "background")),
    **dict.fromkeys(("post_sampling_probs", "return_tokens", "n_probs")),
    # what vLLM and SGLang report beside an answer, or end and read it by
    **dict.fromkeys(("prompt_logprobs", "return_token_ids", "return_tokens_as_token_ids")),
    **dict.fromkeys(("stop_regex", "no_stop_trim", "logits_processors", "truncate_prompt_tokens")),
    **dict.fromkeys(("best_of", "n", "n_cmpl"), 1),
    "length_penalty": 1,
    "repetition_penalty": 1,
    # vLLM's grammars
    **dict.fromkeys(("guided_json", "guided_regex", "guided_choice", "guided_grammar")),
    **dict.fromkeys(("structured_outputs", "ebnf")),
    # what only some interfaces read
    **dict.fromkeys(("grammar", "json_schema", "regex", "stop", "logit_bias")),
    "response_format": {"type": "text"},
    # the prompt
    **dict.fromkeys(("chat_template", "template", "continue_final_message", "documents", "lora")),
    **dict.fromkeys(("images", "context")),
    # thoughts, which no text without a template has
    "chat_template_kwargs": {"enable_thinking": True},
    **dict.fromkeys(("reasoning_effort", "reasoning_format"), "none"),
    **dict.fromkeys(("enable_thinking", "include_reasoning", "separate_reasoning"), True),
    **dict.fromkeys(("reasoning_budget_tokens", "reasoning_budget", "thinking_budget"), -1),
    **dict.fromkeys(("thinking_token_budget", "thinking_budget_tokens"), -1),
    **dict.fromkeys(("max_thinking_tokens", "max_reasoning_tokens"), -1),
    **dict.fromkeys(("think", "reasoning_split")),
    "thinking": {"type": "disabled"},
    "reasoning": {"effort": "none"},
    # other objects with fields in them
    **dict.fromkeys(("extra_body", "vllm_xargs", "custom_params", "nvext")),
    # what OpenAI and Anthropic run themselves
    **dict.fromkeys(("web_search_options", "mcp_servers", "audio")),
    "modalities": ["text"],
}
"""Fields that would change the answer: by name, the value beside an empty one that changes nothing."""
_ELSEWHERE = frozenset(
    (
        # limits, and what ends an answer
        *("max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict", "num_predict"),
        *("stop_sequences", "repeat_last_n"),
        # the prompt
        *("instructions", "system", "suffix", "raw", "options"),
        *("input_prefix", "input_suffix", "input_extra", "conversation", "previous_response_id"),
        # what the answer has to look like, or to report
        *("format", "text", "output_config", "output_format", "logprobs"),
        *("tools", "functions", "function_call"),
    )
)
"""Fields of other interfaces than the one that is asked, where it has another name for them or none: they would change the answer, too."""


class Own(msgspec.Struct):
    """Fields that only localspec has."""

    draft: str | None = None
    exact: bool | None = None
    drafts: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{0,64}$")] = ""


class AnswerFields(msgspec.Struct, kw_only=True):
    """Fields of every request for an answer. Others are ignored, but for those that would change it."""

    unread: ClassVar[Collection[str]] = ()
    """Names of fields that this kind of request has no use for."""
    answers: ClassVar[bool] = True
    """Whether it is for an answer, and not for a count."""
    model: str = ""
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repeat_penalty: float | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    cache_prompt: bool = True
    seed: int | None = None
    stream: bool = False
    localspec: Own = msgspec.field(default_factory=Own)

    @property
    def most_cached(self) -> int | None:
        """How much of what was evaluated before may be used, see `Request`."""
        return None if self.cache_prompt else 0

    def draft(self, *, exact: bool) -> str | None:
        """Return what drafts; None takes what the server was started with.

        Args:
            exact: whether it was started with `--exact`.

        Raises:
            UsageError: the body wants another `exact`.
        """
        own = self.localspec
        if own.exact is not None and own.exact != exact:
            raise UsageError(
                f"localspec.exact is {str(own.exact).lower()}, and this server was started {'with' if exact else 'without'} "
                "--exact, which holds for all requests: leave it out, or start another server"
            )
        return None if own.draft == "auto" else own.draft


T = TypeVar("T", bound=msgspec.Struct)


async def body_of(
    request: HttpRequest, kind: type[T], nested: str = "", *, media: bool = False
) -> T:
    """Return a request's body as a record; a field that is null is one that is left out.

    Args:
        request: has the body.
        kind: of the record.
        nested: name of an object in the body whose fields are the body's own, too, as those of `extra_body` always are.
        media: whether pictures and sounds in it may make it larger.

    Raises:
        TooLarge: it is.
        Busy: too many others are as large.
        UsageError: it is no JSON, or no such record, or has a field that is not supported.
    """
    if (coding := request.headers.get("content-encoding", "identity")) != "identity":
        raise UsageError(
            f"Content-Encoding {coding[:40]!r} is not supported: send the body uncompressed"
        )
    body = await _read(request, media=media)
    try:
        fields = msgspec.json.decode(body)
        if isinstance(fields, dict):
            fields = _flat(fields, nested)
            known = {*kind.__struct_fields__} - {*getattr(kind, "unread", ())}
            _refuse_unsupported(fields, known, answers=getattr(kind, "answers", False))
        return _converted(fields, kind)
    except RecursionError:
        raise UsageError("the body is nested too deeply: send a flatter one") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"the body is not valid: {error}") from None


async def _read(request: HttpRequest, *, media: bool) -> bytes:
    most = MOST_LARGE_BYTES if media else MOST_BODY_BYTES
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > most:
            raise TooLarge(f"the body has more than {most >> 20} MB: send a shorter one")
        if size > MOST_BODY_BYTES:
            large: set[HttpRequest] = request.app.state.large
            if len(large - {request}) >= MOST_LARGE:
                raise Busy(f"{MOST_LARGE} bodies as large are being answered: try later")
            large.add(request)
        pieces.append(piece)
    body = b"".join(pieces)
    if size > MOST_BODY_BYTES:
        size -= sum(each.end() - each.start() for each in _MEDIA.finditer(body))
    if size > MOST_BODY_BYTES:
        raise TooLarge(
            f"the body has more than {MOST_BODY_BYTES >> 20} MB beside pictures and sounds: send a shorter one"
        )
    return body


def _flat(fields: dict[str, Any], nested: str) -> dict[str, Any]:
    """Return the fields of a body that are not null, and those of objects that programs write in place of them.

    `extra_body` goes before the body, as OpenAI's client for Python has it, and the body before `nested`.
    """
    fields = _given(fields)
    while isinstance(inner := fields.get(_EXTRA), dict):
        fields = {name: each for name, each in fields.items() if name != _EXTRA} | _given(inner)
    if isinstance(inner := fields.get(nested), dict):
        fields = _given(inner) | {name: each for name, each in fields.items() if name != nested}
    return fields


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _converted(fields: Any, kind: type[T]) -> T:
    """Return fields as a record; some programs write 8192.0 where a whole number belongs."""
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError:
        return msgspec.convert(_with_wholes(fields), kind)


def _with_wholes(value: Any) -> Any:
    """Return a value in which numbers without a fraction are whole numbers, as far as a double counts them."""
    match value:
        case dict():
            return {name: _with_wholes(each) for name, each in value.items()}
        case list():
            return [_with_wholes(each) for each in value]
        case float() if value.is_integer() and abs(value) < _MOST_COUNTED:
            return int(value)
    return value


def _refuse_unsupported(
    fields: Mapping[str, Any], known: Collection[str], *, answers: bool
) -> None:
    refused = _UNSUPPORTED.keys() | (_ELSEWHERE if answers else ())
    for name in fields.keys() & refused:
        if name not in known and fields[name] and fields[name] != _UNSUPPORTED.get(name):
            raise UsageError(f"{name} is not supported by this server: {instead_of(name)}")


def logprobs_of(name: str, most: int | None) -> int | None:
    """Return how many of the likeliest tokens to report, from the field of that name; None reports no logprobs."""
    if most is not None and not 0 <= most <= MOST_LOGPROBS:
        raise UsageError(f"{name} is {most}: give 0 to {MOST_LOGPROBS}")
    return most


async def reply_options(
    body: AnswerFields, usual: ReplyOptions, limit: int | None, **fields: Any
) -> ReplyOptions:
    """Return how to answer: as a body says, and else as usual. A schema that cannot be enforced is loosened, unless it is strict.

    Args:
        body: its fields that are options count.
        usual: how to answer where it says nothing.
        limit: most tokens of the answer, where less than none is no limit; editors want none to have a prompt read
            ahead, and one is made, see `Service.reply`.
        fields: what the interface calls otherwise.

    Raises:
        UsageError: a value is wrong, or the form of the answer cannot be enforced.
    """
    given = {name: getattr(body, name, None) for name in FIELDS}
    given |= {name: given[name] or None for name in ("stop", "logit_bias")} | fields
    form = given[FORMAT]
    structured = any(given.get(each) is not None for each in GRAMMARS)
    if form == {} or (isinstance(form, dict) and form.get("type") == "text" and structured):
        given[FORMAT] = None
    given["max_tokens"] = None if limit is None or limit < 0 else max(1, limit)
    if limit is not None and limit < 0:
        usual = replace(usual, max_tokens=None)
    options = with_fields(usual, given)
    if options.answer_grammar is None:
        return options
    schema, strict = (None, True) if given[FORMAT] is None else schema_of(given[FORMAT])
    if schema is not None and not strict:
        for wider in (_without_unique_items(schema), *_looser(schema)):
            with suppress(UsageError):
                await asyncio.to_thread(require_sound, options)
                return options
            options = replace(options, json_schema=wider)
    await asyncio.to_thread(require_sound, options)
    return options


def _without_unique_items(schema: Any) -> Any:
    """Return a schema without `uniqueItems`, which is rarely enforceable: a set in Python has it."""
    if isinstance(schema, dict):
        return {
            name: _without_unique_items(each)
            for name, each in schema.items()
            if (name, each) != ("uniqueItems", True)
        }
    return [_without_unique_items(each) for each in schema] if isinstance(schema, list) else schema


def _looser(schema: Any) -> Iterator[Any]:
    """Yield a schema with fewer and fewer bounds: properties keep their names and types, anything else its type."""
    from localspec.grammar.call_grammar import by_type, looser  # noqa: PLC0415 - few schemas need it

    if not isinstance(schema, dict) or not isinstance(schema.get("properties"), dict):
        yield by_type(schema)
        return
    for each in looser(Tool("answer", schema)):
        yield each.parameters
