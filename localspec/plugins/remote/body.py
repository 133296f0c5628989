"""A request as the body that a server of OpenAI's interface takes, in the words of the server that it is. What it cannot have is refused by name.

Sources: the references of OpenAI, vLLM, SGLang and llama.cpp's server.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from itertools import groupby
from typing import Any

from localspec.api import Message, Request, SamplingParams, UsageError
from localspec.calls.policy import CallOffer
from localspec.chat.turns import complete, with_results
from localspec.media import media_type
from localspec.messages import MediaPart, to_json
from localspec.options import FORBIDDEN
from localspec.options.option import own_options, values_of

LLAMA, LOCALSPEC, VLLM, SGLANG = "llama-server", "localspec", "vLLM", "SGLang"
KINDS = {"llamacpp": LLAMA, "localspec": LOCALSPEC, "vllm": VLLM, "sglang": SGLANG}
"""Servers by what `owned_by` says in their lists of models."""
_GRAMMARS: Mapping[tuple[str, str], str] = {
    (LLAMA, "grammar"): "grammar",
    (LOCALSPEC, "grammar"): "grammar",
    (SGLANG, "grammar"): "ebnf",
    (SGLANG, "regex"): "regex",
    (VLLM, "grammar"): "structured_outputs.grammar",
    (VLLM, "regex"): "structured_outputs.regex",
}
_BUDGETS = {
    **dict.fromkeys((LLAMA, LOCALSPEC), "reasoning_budget_tokens"),
    VLLM: "thinking_token_budget",
}
_PENALTY = dict.fromkeys((VLLM, SGLANG), "repetition_penalty")
_BAN = 100
_FORMATS = {"audio/wav": "wav", "audio/mpeg": "mp3", "audio/flac": "flac"}


def body_of(
    request: Request, kind: str, model: str, offer: CallOffer, given: Collection[str]
) -> dict[str, Any]:
    """Return the body.

    Args:
        request: what is asked; its seed is set.
        kind: of the server, one of `KINDS`, or another word for what is none of them.
        model: its name there.
        offer: the calls that the answer may have.
        given: names of sampling options that the user set; those that have their default besides are left to the server.

    Raises:
        UsageError: something cannot be had from such a server.
    """
    _refuse(request, kind)
    options = request.options
    body: dict[str, Any] = {
        "model": model,
        "stream": True,
        "stream_options": {"include_usage": True},
        "seed": options.seed,
        **_sampling(options.sampling, kind, given),
    }
    if request.raw is None:
        body["messages"] = [
            _message(each, kind) for each in complete(with_results(request.messages))
        ]
        if request.messages[-1].role == "assistant" and kind in {VLLM, SGLANG}:
            body |= {"continue_final_message": True, "add_generation_prompt": False}
        body |= _thinking(options.think, kind)
        if variables := options.template_variables:
            of_thinking = body.get("chat_template_kwargs", {})
            body["chat_template_kwargs"] = {**of_thinking, **variables}
        body |= _tools(request, offer)
    else:
        body["prompt"] = request.raw
    if options.max_tokens is not None:
        body["max_tokens"] = options.max_tokens
    if options.stop:
        body["stop"] = list(options.stop)
    if kind == LLAMA:
        body["return_progress"] = True
    return body | _form(request, kind)


def _refuse(request: Request, kind: str) -> None:
    """Raise UsageError for what no server gives; a prediction is looked up here, for a localspec."""
    for is_wanted, name in (
        (request.draft is not None, "draft"),
        (request.infill is not None, "infill"),
        (request.logprobs is not None, "logprobs"),
        (request.echo, "echo"),
        (isinstance(request.raw, tuple), "a prompt of token ids"),
        (bool(request.prediction) and kind != LOCALSPEC, "a prediction"),
        (request.options.min_tokens > 0, "min_tokens"),
        (request.options.ignore_eos, "ignore_eos"),
        (request.options.stop_loops, "stop_loops"),
    ):
        if is_wanted:
            raise UsageError(f"{name} cannot be had from a server: leave it out, or use --own")


def _message(message: Message, kind: str) -> dict[str, Any]:
    """Return a message; thoughts of earlier turns go where they are known to be read."""
    value = to_json(message)
    if message.media:
        value["content"] = [*_parts(message)]
    value.pop("is_error", None)
    thoughts = value.pop("reasoning_content", None)
    if thoughts and kind in KINDS.values():
        value |= dict.fromkeys(("reasoning_content", "reasoning"), thoughts)
    return value


def _parts(message: Message) -> Iterator[dict[str, Any]]:
    """Yield what a user says and attached, in order."""
    for is_media, group in groupby(message.parts, lambda each: isinstance(each, MediaPart)):
        parts = tuple(group)
        if not is_media:
            yield {"type": "text", "text": Message(message.role, parts).text}
        for each in parts:
            if isinstance(each, MediaPart) and each.kind == "image":
                yield {"type": "image_url", "image_url": {"url": each.data_url}}
            elif isinstance(each, MediaPart):
                sound = {
                    "data": each.data_url.partition(",")[2],
                    "format": _FORMATS[media_type(each.data)],
                }
                yield {"type": "input_audio", "input_audio": sound}


def _sampling(sampling: SamplingParams, kind: str, given: Collection[str]) -> dict[str, Any]:
    usual = {each.name: each.default for each in own_options(SamplingParams)}
    chosen = {
        name: value
        for name, value in values_of(sampling).items()
        if name in given or value != usual[name]
    }
    if (penalty := chosen.pop("repeat_penalty", None)) is not None:
        chosen[_PENALTY.get(kind, "repeat_penalty")] = penalty
    if (last := chosen.pop("penalty_last_n", None)) is not None:
        if kind == LLAMA:
            chosen["repeat_last_n"] = last
        elif last != usual["penalty_last_n"]:
            raise _missing("penalty_last_n", kind)
    if biases := chosen.pop("logit_bias", None):
        chosen["logit_bias"] = {
            str(token): -_BAN if bias <= FORBIDDEN else max(-_BAN, min(_BAN, bias))
            for token, bias in biases
        }
    return chosen


def _thinking(think: str | None, kind: str) -> dict[str, Any]:
    """Return how a model is to think: by OpenAI's field, and by the variable that most templates have."""
    if think is None:
        return {}
    variables = {"chat_template_kwargs": {"enable_thinking": think != "off"}}
    if think in {"on", "off"}:
        return variables
    if not str(think).isdecimal():
        return {**variables, "reasoning_effort": think}
    if kind not in _BUDGETS:
        raise _missing(f"think {think}", kind)
    return {**variables, _BUDGETS[kind]: int(think)}


def _tools(request: Request, offer: CallOffer) -> dict[str, Any]:
    tools = [each.to_json() for each in request.tools if each.name in offer.names]
    if not tools:
        return {}
    choice = {"tool_choice": "required"} if offer.required else {}
    return {"tools": tools, **choice, **({"parallel_tool_calls": False} if offer.single else {})}


def _form(request: Request, kind: str) -> dict[str, Any]:
    """Return what binds the answer."""
    bound = request.options.answer_grammar
    if bound is None:
        return {}
    name, text = bound
    if name == "json_schema":
        schema = json.loads(text)
        if request.raw is not None and kind in {LLAMA, LOCALSPEC}:
            return {"json_schema": schema}
        described = {"name": "answer", "strict": True, "schema": schema}
        return {"response_format": {"type": "json_schema", "json_schema": described}}
    field = _GRAMMARS.get((kind, name))
    if field is None:
        raise _missing(name, kind)
    outer, _, inner = field.partition(".")
    return {outer: {inner: text} if inner else text}


def _missing(name: str, kind: str) -> UsageError:
    return UsageError(f"{name} cannot be had from {kind}: leave it out, or use --own")
