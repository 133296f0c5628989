"""Message: what one side says in a conversation, and its forms as a text and as JSON. Knows no model and no file.

A text holds the words and the documents of a message, as a model reads them and as the history stores them. JSON is the
form of OpenAI's chat bodies, which chat templates read as well.
"""

import binascii
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, groupby
from typing import Any, Literal

import msgspec

from localspec.display import printable
from localspec.errors import UsageError
from localspec.media import checked_kind, media_type

Role = Literal["system", "user", "assistant", "tool"]

_HEADER = re.compile(r'\n\n<file name="([^"\n]*)">\n')
_HALF = "half of a character (a lone surrogate)"
GAP = "\n\n"
"""Between a document and words behind it."""
_QUOTE = "&quot;"
_END, _BROKEN_END = "</file>", "<\\/file>"
MEDIA = "\ud801"
"""Encloses the hash of a picture or a sound where a template renders it: a lone surrogate, as `BREAK` is, that no content can forge."""
_DATA_URL = re.compile(r"data:(?:image|audio)/[\w.+-]+;base64,", re.ASCII)


class Tagged(msgspec.Struct, frozen=True, tag=True):
    """A value that stands in JSON with its class's name as `type`, so that it can be one of several."""


class TextPart(Tagged, frozen=True):
    """Words."""

    text: str


class DocumentPart(Tagged, frozen=True):
    """A file that goes with what is said.

    Args:
        name: as the user wrote it.
        text: its content.
    """

    name: str
    text: str

    @property
    def block(self) -> str:
        """What a model reads: the content between two tags. A document cannot end its own block."""
        name = self.name.replace('"', _QUOTE).replace("\n", " ")
        return f'\n\n<file name="{name}">\n{self.text.replace(_END, _BROKEN_END)}\n{_END}'


class Held(msgspec.Struct, frozen=True):
    """Memory that models hold, in bytes.

    Args:
        places: of the RAM, and of devices, by their names.
        mapped_bytes: what of the RAM is a file's pages, which the system takes to be free.
    """

    places: dict[str, int] = {}
    mapped_bytes: int = 0

    def __add__(self, other: "Held") -> "Held":
        places = {
            name: self.places.get(name, 0) + other.places.get(name, 0)
            for name in self.places | other.places
        }
        return Held(places, self.mapped_bytes + other.mapped_bytes)


class MediaPart(Tagged, frozen=True):
    """A picture or a sound that goes with what is said.

    Args:
        kind: which of the two.
        name: as the user wrote it.
        data: the file, byte by byte; base64 in JSON. Empty where the history lacks it.
        missing: hash of the file where the history lacks it.
    """

    kind: Literal["image", "audio"]
    name: str
    data: bytes
    missing: str = ""

    @classmethod
    def of(cls, data: bytes, name: str) -> "MediaPart":
        """Return a file as a part of a message.

        Raises:
            UsageError: it is neither picture nor sound, or too large.
        """
        return cls(checked_kind(data, name), name, data)

    @classmethod
    def of_base64(cls, data: str, name: str) -> "MediaPart":
        """Return a file in base64 as a part of a message; raises as `of` does, and where it is no base64."""
        try:
            return cls.of(binascii.a2b_base64(data.encode("ascii"), strict_mode=True), name)
        except (ValueError, UnicodeEncodeError):
            raise UsageError(f"{name} is no base64: encode the file") from None

    @property
    def sha256(self) -> str:
        """The hash of the file, in hexadecimal digits."""
        return self.missing or hashlib.sha256(self.data).hexdigest()

    @property
    def data_url(self) -> str:
        """The file as a URL that holds all of it."""
        encoded = binascii.b2a_base64(self.data, newline=False).decode("ascii")
        return f"data:{media_type(self.data)};base64,{encoded}"

    @property
    def marker(self) -> str:
        """What stands for it in a prompt's text, until an encoder has made tokens of it."""
        return f"{MEDIA}{self.sha256}{MEDIA}"


class ToolCall(Tagged, frozen=True):
    """A function that the assistant wants to have called.

    Args:
        id: what its result refers to.
        name: of the function.
        arguments: a JSON object as a text, exactly as the model wrote it: it need not be valid.
    """

    id: str
    name: str
    arguments: str

    @property
    def arguments_line(self) -> str:
        """The arguments on one line: the blanks between its lines go, those in its texts stay."""
        return " ".join(map(str.strip, self.arguments.splitlines()))


class ToolResult(Tagged, frozen=True):
    """What a call came to.

    Args:
        call_id: id of the call.
        text: what the function returned, or why it failed.
        is_error: whether it failed.
    """

    call_id: str
    text: str
    is_error: bool = False


Part = TextPart | DocumentPart | MediaPart | ToolCall | ToolResult

_READ = (TextPart, DocumentPart)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation.

    Args:
        role: who says it.
        parts: what is said: texts, documents, pictures and sounds; calls only of the assistant; a tool says one result and nothing else.
        thinking: the thoughts of a reply, apart from its answer.
    """

    role: Role
    parts: tuple[Part, ...] = ()
    thinking: str = ""

    @classmethod
    def system(cls, text: str) -> "Message":
        """Return a system prompt."""
        return cls("system", _words(text))

    @classmethod
    def user(
        cls, text: str, documents: Iterable[DocumentPart] = (), media: Iterable[MediaPart] = ()
    ) -> "Message":
        """Return what a user typed, and what goes with it: pictures and sounds before it, documents behind."""
        return cls("user", (*media, *_words(text), *documents))

    @classmethod
    def assistant(cls, text: str, thinking: str = "") -> "Message":
        """Return a reply."""
        return cls("assistant", _words(text), thinking)

    @classmethod
    def from_text(cls, role: Role, text: str, thinking: str = "") -> "Message":
        """Return the message that has this `text`; where it is a user's, documents are found in it again."""
        return cls(role, tuple(_with_documents(text)) if role == "user" else _words(text), thinking)

    @property
    def text(self) -> str:
        """Words and documents as one text, as a model reads them; without media, calls and results."""
        return _text(self.parts)

    @property
    def typed(self) -> str:
        """The words alone, without documents and the gap behind them."""
        behind, texts = None, list[str]()
        for each in self.parts:
            if isinstance(each, TextPart):
                is_gap = isinstance(behind, DocumentPart)
                texts.append(each.text.removeprefix(GAP) if is_gap else each.text)
            behind = each
        return "".join(texts)

    @property
    def documents(self) -> tuple[DocumentPart, ...]:
        """The documents, in order."""
        return tuple(each for each in self.parts if isinstance(each, DocumentPart))

    @property
    def media(self) -> tuple[MediaPart, ...]:
        """The pictures and sounds, in order."""
        return tuple(each for each in self.parts if isinstance(each, MediaPart))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls, in order."""
        return tuple([each for each in self.parts if isinstance(each, ToolCall)])

    def changed(self, change: Callable[[str], str]) -> "Message":
        """Return the message with `change` applied to all that a model reads of it.

        Words and documents become one part between two media, since a model reads them as one text.
        """
        contents, others = list[Part](), list[Part]()
        for readable, parts in groupby(self.parts, lambda each: isinstance(each, _READ)):
            if readable:
                contents += _words(change(_text(parts)))
                continue
            for each in parts:
                match each:
                    case ToolCall():
                        others.append(
                            ToolCall(change(each.id), change(each.name), change(each.arguments))
                        )
                    case ToolResult():
                        changed = msgspec.structs.replace(
                            each, call_id=change(each.call_id), text=change(each.text)
                        )
                        others.append(changed)
                    case _:
                        contents.append(each)
        return Message(self.role, (*contents, *others), self.thinking and change(self.thinking))


@dataclass(frozen=True, slots=True)
class Infill:
    """A gap in a text to be filled in, and what is around it.

    Args:
        prefix: before the gap.
        suffix: behind it.
        files: names and texts of what else is of use, the most useful last.
        indent: blanks and tabs that a further line begins with, at least: what fills the gap ends before one that begins with fewer.
        within_s: what fills the gap ends with the first line that ends so long after its first token; None lets it go on.
    """

    prefix: str
    suffix: str
    files: tuple[tuple[str, str], ...] = ()
    indent: int = 0
    within_s: float | None = None


def call_to_json(call: ToolCall) -> dict[str, Any]:
    """Return a call as OpenAI's interface has it."""
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def to_json(message: Message) -> dict[str, Any]:
    """Return a message as OpenAI's chat bodies and chat templates have it; a picture or a sound is its marker in the text.

    Beside their fields, `reasoning_content` holds thoughts, and `is_error` is true of a result that is an error. Calls
    stand behind the text.
    """
    for each in message.parts:
        if isinstance(each, ToolResult):
            failed = {"is_error": True} if each.is_error else {}
            return {"role": "tool", "tool_call_id": each.call_id, "content": each.text, **failed}
    value: dict[str, Any] = {"role": message.role, "content": _text(message.parts, markers=True)}
    if message.thinking:
        value["reasoning_content"] = message.thinking
    if calls := message.calls:
        value["tool_calls"] = [call_to_json(each) for each in calls]
    return value


_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_WORDS = ("content", "reasoning_content")
THOUGHTS = ("reasoning_content", "reasoning", "thinking", "reasoning_details")
"""Names that programs have for the thoughts of a reply: DeepSeek and llama.cpp, vLLM and OpenRouter, Ollama, OpenRouter."""
_THOUGHT_PARTS = ("thinking", "reasoning")
_THOUGHT_TEXTS = ("thinking", "text", "summary")
_FIELDS: Mapping[Role, Sequence[str]] = {
    "system": _WORDS,
    "user": _WORDS,
    "assistant": (*_WORDS, "tool_calls", "refusal"),
    "tool": ("content", "tool_call_id", "is_error"),
}


class _TextForm(msgspec.Struct, tag_field="type", tag="text"):
    text: str


class _RefusalForm(msgspec.Struct, tag_field="type", tag="refusal"):
    refusal: str


class _ImageUrl(msgspec.Struct):
    url: str


class _ImageForm(msgspec.Struct, tag_field="type", tag="image_url"):
    image_url: _ImageUrl


class _AudioData(msgspec.Struct):
    data: str


class _AudioForm(msgspec.Struct, tag_field="type", tag="input_audio"):
    input_audio: _AudioData


_PartForm = _TextForm | _RefusalForm | _ImageForm | _AudioForm


class _FunctionForm(msgspec.Struct):
    name: str
    arguments: Any = ""


class _CustomForm(msgspec.Struct):
    name: str
    input: str = ""


class _CallForm(msgspec.Struct):
    id: str
    function: _FunctionForm | None = None
    custom: _CustomForm | None = None


class _MessageForm(msgspec.Struct):
    """A message as OpenAI's chat bodies have it; of fields that its role does not have, nothing is read."""

    content: str | list[_PartForm] | msgspec.UnsetType | None = msgspec.UNSET
    reasoning_content: str | None = None
    tool_calls: list[_CallForm] | None = None
    tool_call_id: str | None = None
    is_error: Any = None
    refusal: str | None = None


def _refused(url: str) -> MediaPart:
    raise UsageError(
        f"the picture at {printable(url[:80])} is not fetched: send it as a data: URL with its base64"
    )


def from_json(
    value: Any, what: str = "the message", open_url: Callable[[str], MediaPart] = _refused
) -> Message:
    """Return the message in a JSON value: what `to_json` returns, or a body of OpenAI's form.

    The role may be `developer`, too, which is `system`. A content may be empty, or a list of parts: text, `refusal`, and of
    a user's message `image_url` (a data URL, or what `open_url` opens) and `input_audio` as well. Thoughts of a reply may
    have any name of `THOUGHTS`, or be parts of its content, and it may say nothing; arguments of calls may be a text, an object or nothing.

    Args:
        value: as `json.loads` returns it.
        what: how errors call it.
        open_url: returns the picture behind a URL that holds none itself; raises UsageError where it must not be read.

    Raises:
        UsageError: it is no such message, or has no content where some is needed.
    """
    thoughts = ""
    if isinstance(value, dict) and value.get("role") == "assistant":
        value, thoughts = _without_thoughts(value)
    role, form = _form(value, what)
    content = form.content
    if isinstance(content, list) and role == "user":
        return Message("user", tuple(_parts(content, what, open_url)))
    if isinstance(content, list):
        if any(isinstance(each, _ImageForm | _AudioForm) for each in content):
            raise UsageError(f"{what} has a picture or a sound: only messages of the user may")
        content = "".join(map(_words_of, content))
    calls = form.tool_calls or [] if role == "assistant" else []
    thoughts = form.reasoning_content or thoughts
    if content is msgspec.UNSET and role != "assistant":
        raise UsageError(f"{what} lacks its content: write some, or an empty text")
    text = (content if isinstance(content, str) else "") or form.refusal or ""
    if role == "tool":
        if form.tool_call_id is None:
            raise UsageError(f"{what} lacks its tool_call_id: write the id of its call")
        return Message("tool", (ToolResult(form.tool_call_id, text, form.is_error is True),))
    message = Message.from_text(role, text, thoughts)
    return replace(message, parts=(*message.parts, *(_call(each, what) for each in calls)))


def _call(form: _CallForm, what: str) -> ToolCall:
    """Return a call of a function, or of a tool that takes a text."""
    if form.function is not None:
        return ToolCall(form.id, form.function.name, _arguments(form.function.arguments, what))
    if form.custom is None:
        raise UsageError(f"a call of {what} in its tool_calls lacks its function: write one")
    return ToolCall(form.id, form.custom.name, _arguments({"input": form.custom.input}, what))


def _arguments(value: Any, what: str) -> str:
    """Return the arguments of a call as a text; some programs send the object itself, or nothing."""
    if value is None or isinstance(value, str):
        return value or ""
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        raise UsageError(
            f"the arguments of a call of {what} are nested too deeply: send flatter ones"
        ) from None


def _without_thoughts(value: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return a reply without the parts of its content that are thoughts, and the thoughts, whatever name they have."""
    content, parts = value.get("content"), list[Any]()
    if isinstance(content, list):
        parts = [each for each in content if _is_thought(each)]
        if parts:
            content = [each for each in content if not _is_thought(each)]
    given = [value.get(name) for name in THOUGHTS[1:]]
    thoughts = next(filter(None, map(_thoughts, [parts, *given])), "")
    if _has_half(thoughts):
        thoughts = thoughts.encode(errors="replace").decode()
    return ({**value, "content": content or None} if parts else value), thoughts


def _is_thought(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in _THOUGHT_PARTS


def _thoughts(value: Any, levels: int = 5) -> str:
    """Return the text of thoughts: one, or the texts of a list of parts; nothing of what is hidden or something else."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and levels:
        return "".join(_thoughts(each, levels - 1) for each in value)
    if isinstance(value, dict) and levels:
        texts = (value[name] for name in _THOUGHT_TEXTS if value.get(name))
        return next((_thoughts(each, levels - 1) for each in texts), "")
    return ""


def _parts(
    content: Sequence[_PartForm], what: str, open_url: Callable[[str], MediaPart]
) -> Iterator[Part]:
    """Return what a user says; texts that follow one another are one text, in which documents are found."""
    pictures, sounds = count(1), count(1)
    words = (_TextForm, _RefusalForm)
    for is_text, forms in groupby(content, lambda each: isinstance(each, words)):
        texts = list[str]()
        for each in forms:
            match each:
                case _TextForm() | _RefusalForm():
                    texts.append(_words_of(each))
                case _ImageForm():
                    yield _from_url(
                        each.image_url.url, f"picture {next(pictures)} of {what}", open_url
                    )
                case _AudioForm():
                    name = f"sound {next(sounds)} of {what}"
                    yield MediaPart.of_base64(each.input_audio.data, name)
        if is_text:
            yield from _with_documents("".join(texts))


def _words_of(part: _PartForm) -> str:
    return part.refusal if isinstance(part, _RefusalForm) else getattr(part, "text", "")


def _from_url(url: str, name: str, open_url: Callable[[str], MediaPart]) -> MediaPart:
    head = _DATA_URL.match(url)
    return open_url(url) if head is None else MediaPart.of_base64(url[head.end() :], name)


def _form(value: Any, what: str) -> tuple[Role, _MessageForm]:
    """Return the role of a message, and its fields as far as that role has them."""
    if not isinstance(value, dict):
        raise UsageError(f"{what} is not an object: write its role and content")
    role = _ROLES.get(str(value.get("role")))
    if role is None:
        given = str(value.get("role"))[:40]
        raise UsageError(f"{what} has the role {given!r}: choose one of {', '.join(_ROLES)}")
    fields = {
        each: value[each]
        for each in _FIELDS[role]
        if each in value and (value[each] or each != "reasoning_content")
    }
    try:
        form = msgspec.convert(fields, _MessageForm)
    except msgspec.ValidationError as error:
        reason = printable(str(error))[:160]
        remedy = (
            "only texts, pictures and sounds are supported"
            if "$.content" in reason
            else "check that field"
        )
        raise UsageError(f"{what} cannot be read ({reason}): {remedy}") from None
    for name, each in fields.items():
        if _has_half(each):
            raise UsageError(f"{name} of {what} has {_HALF}: fix it")
    return role, form


def _has_half(value: Any) -> bool:
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        return True
    return False


def without_empty_prompts(messages: Iterable[Message]) -> list[Message]:
    """Return a conversation without system prompts that say nothing: programs send one where a user wrote none."""
    return [each for each in messages if each.role != "system" or each.text.strip()]


def checked_text(value: Any, what: str) -> str:
    """Return a text that a model can read.

    Raises:
        UsageError: it is none, is empty, or has half of a character.
    """
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"{what} is empty or not text: write a prompt")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{what} has {_HALF}: fix it") from None
    return value


def _words(text: str) -> tuple[Part, ...]:
    return (TextPart(text),) if text else ()


def _text(parts: Iterable[Part], *, markers: bool = False) -> str:
    """Return words and documents as one text, and in it the markers of media where they are wanted."""
    texts = list[str]()
    for each in parts:
        match each:
            case TextPart():
                texts.append(each.text)
            case DocumentPart():
                texts.append(each.block)
            case MediaPart() if markers:
                texts.append(each.marker)
    return "".join(texts)


def _with_documents(text: str) -> Iterator[Part]:
    """Find the blocks of documents in a text. What looks nearly like one is text, so that not a byte is lost."""
    done = 0
    at = _HEADER.search(text)
    while at is not None:
        end = text.find(f"\n{_END}", at.end())
        if end < 0:
            break
        content = text[at.end() : end].replace(_BROKEN_END, _END)
        document = DocumentPart(at[1].replace(_QUOTE, '"'), content)
        after = at.end()
        if text.startswith(document.block, at.start()):
            yield from _words(text[done : at.start()])
            yield document
            done = after = at.start() + len(document.block)
        at = _HEADER.search(text, after)
    yield from _words(text[done:])
