"""The request that a line makes, in any of the forms in which prompts are written down."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from localspec.batch.line_template import LineTemplate
from localspec.batch.record import Id, line_seed
from localspec.batch.source import Line
from localspec.chat.request import Request
from localspec.display import printable_line
from localspec.errors import UsageError
from localspec.grammar import require_sound
from localspec.media import MOST_BYTES
from localspec.messages import (
    THOUGHTS,
    MediaPart,
    Message,
    checked_text,
    from_json,
    without_empty_prompts,
)
from localspec.options import LaunchOptions, ReplyOptions, cut, options_of
from localspec.options.fields import (
    FIELDS,
    KWARGS,
    OTHER_NAMES,
    SAMPLING,
    THINKING,
    instead_of,
    kwargs_of,
    think_of,
    with_fields,
)

DEFAULT_FIELD = "prompt"
_IDS = ("id", "custom_id")
_LONGEST_ID, _LIKE = 512, 0.85
_ROLES = ("system", "developer", "user", "assistant")
_OWN = "reply_options"
"""The field with options of a line whose other fields may be data."""
_OWN_NAMES = (*FIELDS, "system")
_OF_RUNS = {
    *("model", "server", "gate", "own", "workload", "parallel"),
    *(each.name for each in options_of(LaunchOptions)),
}
_OF_NONE = {"tools", "docs", "files", "image", "images"}
"""What other programs or verbs read."""

# OpenAI's batch form, as far as a local model can serve it: what a body asks for beyond that is an error of its line.
# Source: the files of platform.openai.com/docs/guides/batch, as its clients write them.
_URLS = ("/v1/chat/completions", "/v1/completions")
_PREDICTION = "prediction"
_READ = {"model", "messages", "prompt", "max_completion_tokens", _PREDICTION, *FIELDS, *THINKING}
_THINKING_TAKES = ("a text", "an object", "a whole number")
# No answer depends on these.
_IGNORED = {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"}
# These may be set only to what they are anyway.
_FIXED: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "stream": (False,),
    "echo": (False,),
    "logprobs": (False, 0),
    "tool_choice": ("none",),
    "tools": ([],),
}


@dataclass(frozen=True, slots=True)
class Form:
    """How lines become prompts, and are answered unless they say otherwise.

    Args:
        options: how to answer; a seed among them counts for nothing, each line has its own.
        template: makes the prompt of a line's fields, which are data then, whatever their names; None takes the
            prompt as the line has it.
        field: name of the field with the prompt; None is `prompt`.
        system: system prompt of lines that have none of their own.
        raw: let prompts go to the model as they are, without chat template.
        gate: what is masked in answers, see `Request`.
        folder: holds the pictures and sounds that lines may name; None where they may name none.
    """

    options: ReplyOptions
    template: LineTemplate | None = None
    field: str | None = None
    system: str | None = None
    raw: bool = False
    gate: str = ""
    folder: Path | None = None

    @property
    def needed(self) -> str | None:
        """The column that a CSV must have."""
        return None if self.template is not None else self.field or DEFAULT_FIELD


def line_id(line: Line) -> Id:
    """Return the id of a line, a text or a whole number; None if it has none.

    Raises:
        UsageError: it is something else.
    """
    for name in _IDS:
        value = line.fields.get(name)
        if isinstance(value, str) and 0 < len(value) <= _LONGEST_ID:
            return value
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 64:
            return value
        if value is not None and value != "":
            raise UsageError(
                f"{name} is neither a whole number of 64 bits nor a text of up to {_LONGEST_ID} characters"
            )
    return None


def line_request(line: Line, form: Form, seed: int, *, deterministic: bool = False) -> Request:
    """Return the request of a line, by the first form that it has; its number is the id.

    Args:
        line: of the input.
        form: of the run.
        seed: of the run.
        deterministic: see `Request`.

    Raises:
        UsageError: the line has no prompt, or an option that cannot be had.
        TemplateError: the template fails on it.
    """
    if line.problem:
        raise UsageError(line.problem)
    fields = line.fields
    own = own_options(fields)
    system = fields.get("system", form.system) if form.template is None else form.system
    system = own.get("system", system)
    if system is not None and not isinstance(system, str):
        raise UsageError("system is not text: write the system prompt as text")
    body = checked_body(fields) if has_body(fields, form) else {}
    prompt = _prompt(fields, body, system, form)
    options, given = form.options, dict[str, None]()
    if options.seed is not None:  # of the run
        options = replace(options, seed=None)
    for where, each in (
        ("", fields if form.template is None else {}),
        ("body.", body),
        (f"{_OWN}.", own),
    ):
        options = with_fields(options, each)
        given |= dict.fromkeys(name for name in SAMPLING if each.get(name) is not None)
        unread = [name for name in ("think", KWARGS) if each.get(name) is not None]
        if isinstance(prompt, str) and unread:
            name = next((name for name in THINKING if name in each), unread[0])
            raise UsageError(
                f"{where}{name} needs a chat template, and none is used for this text: remove it"
            )
    require_sound(options)  # finds what is wrong with a grammar before anything is evaluated
    if options.seed is None:
        options = replace(options, seed=line_seed(seed, line_id(line), line.number))
    return Request(
        line.number,
        () if isinstance(prompt, str) else prompt,
        options,
        raw=prompt if isinstance(prompt, str) else None,
        ephemeral=True,
        deterministic=deterministic,
        rounds=False,
        gate=form.gate,
        prediction=_prediction(body.get(_PREDICTION)),
        given=tuple(given),
    )


def own_options(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the `reply_options` of a line: an object, or in a CSV the JSON of one; a system prompt is part of it.

    Raises:
        UsageError: it is no object, or has a name that is none of an option.
    """
    value = fields.get(_OWN)
    if value is None or value == "":
        return {}
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise UsageError(f"{_OWN} is {cut(value)}: it takes a JSON object") from None
    if not isinstance(value, dict):
        raise UsageError(f"{_OWN} is {cut(value)}: it takes an object")
    for name in value:
        if name not in _OWN_NAMES:
            raise UsageError(f"{_OWN} has {cut(name)}: choose one of {', '.join(_OWN_NAMES)}")
    return value


def misspelt_options(line: Line, form: Form) -> Iterator[str]:
    """Yield each field of a line that looks like an option and is none of a line, on one line; none where fields are data."""
    own = {*FIELDS, *_IDS, _OWN, DEFAULT_FIELD, form.field, "messages", "system", "body", "url"}
    for name in line.fields if form.template is None else ():
        if name in _OF_RUNS and name not in own:
            yield f"{name!r} is an option of the whole run, and changes nothing in a line"
        elif name in _OF_NONE and name not in own:
            yield f"{name!r} is read from no line, and changes nothing"
        elif name not in own and (near := _likest(name)):
            yield f"{printable_line(name)[:40]!r} is no option and changes nothing: did you mean {near}?"


def _likest(name: str) -> str:
    return OTHER_NAMES.get(name) or next(iter(get_close_matches(name, FIELDS, 1, _LIKE)), "")


def requested_model(line: Line, form: Form) -> str | None:
    """Return what a line in OpenAI's form calls the model, which is answered by ours all the same."""
    model = line.fields["body"].get("model") if has_body(line.fields, form) else None
    return model[:200] if isinstance(model, str) else None


def has_body(fields: Mapping[str, Any], form: Form) -> bool:
    """Return whether a line is in OpenAI's batch form."""
    return form.template is None and form.field is None and fields.get("body") is not None


def checked_body(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a line in OpenAI's batch form, without what is null.

    Raises:
        UsageError: it has something that we cannot give.
    """
    body, url = fields["body"], fields.get("url")
    if not isinstance(body, dict):
        raise UsageError("body is not an object: write what you would send to the API")
    if url is not None and url not in _URLS:
        raise UsageError(f"url is {str(url)[:40]!r}: use {' or '.join(_URLS)}")
    given: dict[str, Any] = {name: value for name, value in body.items() if value is not None}
    for name, value in given.items():
        if name in _FIXED and value not in _FIXED[name]:
            raise UsageError(
                f"body.{name} is {printable_line(str(value))[:40]}: only {_FIXED[name][0]} is supported"
            )
        if name not in _FIXED and name not in _READ and name not in _IGNORED:
            raise UsageError(
                f"body.{printable_line(name)[:40]} is not supported: {instead_of(name)}"
            )
    if "max_completion_tokens" in given:
        given.setdefault("max_tokens", given["max_completion_tokens"])
    for name, kind, what in zip(THINKING, (str, dict, int), _THINKING_TAKES, strict=True):
        value = given.get(name)
        if value is not None and type(value) is not kind:
            raise UsageError(f"body.{name} is {cut(value)}: it takes {what}")
    effort, variables, budget = (given.get(each) for each in THINKING)
    think = think_of(effort, variables, budget, [f"body.{each}" for each in THINKING])
    more = {"think": think, KWARGS: kwargs_of(variables)}
    return {**{name: each for name, each in more.items() if each is not None}, **given}


_Prompt = str | tuple[Message, ...]
"""A text as it is, or a conversation."""


def _prompt(
    fields: Mapping[str, Any], body: Mapping[str, Any], system: str | None, form: Form
) -> _Prompt:
    if form.template is not None:
        return _text(form.template.render(fields), system, form, "what the template made")
    messages, prompt = ((body or fields).get(name) for name in ("messages", DEFAULT_FIELD))
    if form.field is None and messages is not None:
        if prompt is not None:
            raise UsageError("prompt and messages cannot be combined: a line has one of them")
        if form.raw:
            raise UsageError("messages need the chat template, and --raw goes without it")
        return _conversation(messages, system, form.folder)
    # The older endpoint continues a text, for which the system prompt of the run is not meant.
    if body:
        return checked_text(prompt, "body.prompt")
    name = form.field or DEFAULT_FIELD
    if name not in fields:
        present = printable_line(", ".join(fields))[:80] or "nothing"
        raise UsageError(f"the line has no {name!r}, but {present}: --field names another field")
    return _text(fields[name], system, form, repr(name))


def _prediction(value: Any) -> str:
    """Return the text that an answer will be like, of OpenAI's form; empty without one."""
    content = value.get("content") if isinstance(value, dict) else value
    if isinstance(content, list) and all(isinstance(each, dict) for each in content):
        content = "".join(str(each.get("text", "")) for each in content)
    return "" if content is None or content == "" else checked_text(content, f"body.{_PREDICTION}")


def _text(text: Any, system: str | None, form: Form, what: str) -> _Prompt:
    if not form.raw:
        return (*_system(system), Message.user(checked_text(text, what)))
    if system is not None:
        raise UsageError("raw text has no system prompt: remove one of them")
    return checked_text(text, what)


def _conversation(messages: Any, system: str | None, folder: Path | None) -> tuple[Message, ...]:
    """Return messages as a conversation; if the last is the assistant's, the answer goes on with it."""
    if not isinstance(messages, list) or not messages:
        raise UsageError("messages is empty, or not a list: write at least one user message")
    open_url = _opener(folder)
    read = [_message(each, f"message {n}", open_url) for n, each in enumerate(messages, 1)]
    turns = without_empty_prompts(read)
    if all(each.role == "system" for each in turns):
        raise UsageError("messages has nothing to answer: write at least one user message")
    return (*_system(None if read[0].role == "system" else system), *turns)


def _system(text: str | None) -> tuple[Message, ...]:
    return () if text is None else (Message.system(text),)


def _opener(folder: Path | None) -> Callable[[str], MediaPart]:
    """Return what opens pictures and sounds that a line names: of files below a folder, no link leads out of it."""

    def open_url(url: str) -> MediaPart:
        visible = printable_line(url[:80])
        scheme, colon, _ = url.partition(":")
        is_file = scheme.lower() == "file"
        if colon and not is_file and "/" not in scheme:
            raise UsageError(
                f"{visible} is not fetched: write a data: URL with its base64, or name a file"
            )
        if folder is None:
            raise UsageError(
                f"{visible} is not opened: lines from stdin have pictures as data: URLs"
            )
        # Imported here: most lines name none.
        from localspec.toolbox.folder import Folder, name_in_url  # noqa: PLC0415

        name = name_in_url(url) if is_file else url
        try:
            with closing(Folder(folder)) as opened:
                read = opened.read(name, MOST_BYTES)
        except OSError as error:
            raise UsageError(f"{visible} cannot be read ({error.strerror})") from None
        if read is None:
            raise UsageError(f"{visible} is not in the folder of the lines: check its name")
        return MediaPart.of(read[1], name)

    return open_url


def _message(value: Any, what: str, open_url: Callable[[str], MediaPart]) -> Message:
    if isinstance(value, dict):
        role = value.get("role")
        if role not in _ROLES:  # no line has tools
            raise UsageError(
                f"{what} has the role {str(role)[:40]!r}: choose one of {', '.join(_ROLES)}"
            )
        if value.get("tool_calls"):
            raise UsageError(f"{what} calls tools, which are not supported: remove tool_calls")
        value = {name: value.get(name) for name in ("role", "content", *THOUGHTS)}
    return from_json(value, what, open_url)
