"""Calling: what an assistant knows of its model's calls, and which of them a reply may have."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count
from typing import Any

from localspec.calls import CallFormat, Tool
from localspec.calls.policy import CallOffer, Made, OfferedCalls
from localspec.chat.call_finder import call_format
from localspec.chat.call_heads import CallsInThoughts
from localspec.chat.call_parser import CallParser
from localspec.chat.events import CallBegun, CallDelta, CallDone, Delta
from localspec.chat.template import ChatTemplate
from localspec.chat.token_prefix import Conversation
from localspec.chat.tokenizer import Tokenizer, control_pieces
from localspec.messages import Message, ToolCall, ToolResult

_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
_ID_LENGTH = 9  # Mistral's templates refuse others
_FENCE = "```"
_ARGUMENTS = ("arguments", "parameters")
_KEYS = ('"name"', '"arguments"', '"parameters"')
_MOST = 8


@dataclass(frozen=True, slots=True, eq=False)
class CallDialect:
    """How a model writes calls, in its vocabulary.

    Args:
        form: the texts around their parts.
        pieces: bytes of the control tokens that these are made of, by id.
        markers: the special texts that they are made of, control tokens or not.
    """

    form: CallFormat
    pieces: Mapping[int, bytes]
    markers: tuple[str, ...]

    @property
    def control(self) -> Mapping[str, int]:
        """The ids of the control tokens by their text."""
        return {text.decode(): token for token, text in self.pieces.items()}


def call_dialect(template: ChatTemplate, tokenizer: Tokenizer) -> CallDialect | None:
    """Return how a model writes calls; None where its template does not show it."""
    form = call_format(template)
    if form is None:
        return None
    texts = [form.begin, form.then, *form.also, form.end, form.next or ""]
    if form.tagged is not None:
        tagged = form.tagged
        values = (tagged.string.open, tagged.string.close, tagged.other.open, tagged.other.close)
        texts += [tagged.first, tagged.next, tagged.none or "", *values]
    markers = [each for each in tokenizer.special_texts() if any(each in text for text in texts)]
    return CallDialect(form, control_pieces(texts, tokenizer), tuple(markers))


@dataclass(frozen=True, slots=True, eq=False)
class Calling:
    """The calls that a reply may have.

    Args:
        dialect: how the model writes them.
        tools: the functions that there are.
        offer: the ones that may be called, and how often.
        lenient: see `CallPolicy`.
    """

    dialect: CallDialect
    tools: tuple[Tool, ...]
    offer: CallOffer
    lenient: bool = False

    @classmethod
    def of(cls, conversation: Conversation, dialect: CallDialect) -> "Calling":
        """Return the calls that the next reply of a conversation may have.

        Raises:
            UsageError: a call is required, and none is allowed.
        """
        tools = conversation.offered
        names = [each.name for each in tools]
        offer = conversation.call_policy.offer(names, calls_made(conversation.messages))
        return cls(dialect, tools, offer, conversation.call_policy.lenient)

    def parser(self, seed: int, prompt: Sequence[int]) -> CallParser | None:
        """Return what reads the calls of a reply; None where it may have none.

        Args:
            seed: of the reply. The same seed and prompt give the same ids of calls: templates may write them.
            prompt: ids of tokens.
        """
        ids = call_ids(seed, prompt)
        return CallParser(self.dialect.form, self._offered, ids.__next__) if self._offered else None

    def in_thoughts(self) -> CallsInThoughts | None:
        """Return what finds calls in thoughts that never closed; None where the reply may have none."""
        return CallsInThoughts(self.dialect.form, self.offer.names) if self._offered else None

    def written(self, seed: int, prompt: Sequence[int]) -> Callable[[str], Iterator[Delta]] | None:
        """Return what reads calls in the words of a reply that has none; None where none are wanted. See `parser`."""
        if not self.lenient or not self._offered:
            return None
        ids = call_ids(seed, prompt)
        return lambda answer: written_calls(answer, self._offered, self.offer, ids.__next__)

    @property
    def calls(self) -> OfferedCalls:
        """What a grammar holds the answer to."""
        return OfferedCalls(self.dialect.form, self.tools, self.offer, self.dialect.control)

    @property
    def _offered(self) -> list[Tool]:
        return [each for each in self.tools if each.name in self.offer.names]


def calls_made(messages: Sequence[Message]) -> list[Made]:
    """Return the calls of a conversation, in order."""
    results = [part for each in messages for part in each.parts if isinstance(part, ToolResult)]
    good = {each.call_id for each in results if not each.is_error}
    return [Made(call.name, call.id in good) for each in messages for call in each.calls]


def call_ids(seed: int, prompt: Sequence[int]) -> Iterator[str]:
    """Yield ids for the calls of a reply, of nine letters and digits."""
    start = blake2b(f"{seed} {','.join(map(str, prompt))}".encode(), digest_size=8)
    for number in count():
        each = start.copy()
        each.update(f" {number}".encode())
        value = int.from_bytes(each.digest())
        digits = [value // len(_LETTERS) ** place % len(_LETTERS) for place in range(_ID_LENGTH)]
        yield "".join(_LETTERS[digit] for digit in digits)


def written_calls(
    answer: str, tools: Sequence[Tool], offer: CallOffer, new_id: Callable[[], str]
) -> Iterator[Delta]:
    """Yield the calls that a model wrote as JSON at the end of an answer: an object with name and arguments, in a block of code or alone.

    Small models forget their own form. Where the user approves calls first, these can be taken for calls; a server must not.

    Args:
        answer: all of its words.
        tools: what may be called. A call of anything else, with arguments that it does not know, or without one that
            it needs, is words; and so is what stands before it.
        offer: the first call that it does not allow, and all behind it, is words.
        new_id: gives the id of each call.
    """
    by_name = {each.name: each for each in tools}
    calls: list[tuple[str, str]] = []
    while len(calls) < _MOST:
        before, last = _last_block(answer.rstrip())
        call = _call(last, by_name)
        if call is None:
            break
        calls.insert(0, call)
        answer = before
    for name, arguments in calls[: offer.allowed([name for name, _ in calls])]:
        number = new_id()
        yield CallBegun(number, name)
        yield CallDelta(number, arguments)
        yield CallDone(ToolCall(number, name, arguments))


def words_end(answer: str) -> int:
    """Return how much of the beginning of an answer is words, whatever follows; from there on it may be calls."""
    if answer.lstrip().startswith("{") and _may_be_call(answer):
        return 0
    calls_at, at = None, 0
    while (begin := answer.find(_FENCE, at)) >= 0:
        close = answer.find(_FENCE, begin + len(_FENCE))
        _, _, inside = answer[begin : None if close < 0 else close].partition("\n")
        if not _may_be_call(inside):
            calls_at = None
        elif calls_at is None or answer[at:begin].strip():
            calls_at = begin
        if close < 0:
            return len(answer) if calls_at is None else calls_at
        at = close + len(_FENCE)
    words = answer[at:].rstrip("`")
    return at + len(words) if calls_at is None or words.strip() else calls_at


def _may_be_call(text: str) -> bool:
    """Return whether a text is the beginning of an object of a call."""
    text = text.lstrip()
    key = text[1:].lstrip()
    return text[:1] in {"", "{"} and any(each.startswith(key[: len(each)]) for each in _KEYS)


def _last_block(text: str) -> tuple[str, str]:
    """Return the last block of code, and what is before it; or all of a text that is an object."""
    if not text.endswith(_FENCE):
        return "", text if text.startswith("{") else ""
    begin = text.rfind(_FENCE, 0, -len(_FENCE))
    if begin < 0:
        return text, ""
    _, _, inside = text[begin : -len(_FENCE)].partition("\n")
    return text[:begin], inside


def _call(text: str, tools: dict[str, Tool]) -> tuple[str, str] | None:
    """Return the name of the function and the arguments as JSON, if that is what a text is."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not isinstance(name := value.pop("name", None), str):
        return None
    tool = tools.get(name)
    arguments: Any = next((value.pop(key) for key in _ARGUMENTS if key in value), {})
    if tool is None or value or not isinstance(arguments, dict):
        return None
    known: Any = tool.parameters.get("properties") or {}
    listed: Any = tool.parameters.get("required")  # null in some languages
    needed = {e for e in listed if isinstance(e, str)} if isinstance(listed, list) else set[str]()
    if not needed <= arguments.keys() <= set(known):
        return None
    return tool.name, json.dumps(arguments, ensure_ascii=False)
