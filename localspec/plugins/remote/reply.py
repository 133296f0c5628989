"""RemoteReply: the chunks of a server's stream become the events of a reply, through the filters that a server may lack."""

import math
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import msgspec

from localspec.api import (
    Event,
    Finished,
    Message,
    Prefilling,
    Reply,
    Request,
    StopReason,
    Text,
    printable_line,
)
from localspec.calls.policy import CallOffer
from localspec.chat.calling import written_calls
from localspec.chat.events import CallBegun, CallDelta, CallDone, Started
from localspec.chat.reply_text import ThinkingFilter
from localspec.chat.thinking import KNOWN_TAGS
from localspec.decoding.gain import Gain
from localspec.decoding.round import SERVER, Spent
from localspec.decoding.stats import AcceptanceStats
from localspec.messages import ToolCall

_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
_REASONS = {
    "length": StopReason.LENGTH,
    "tool_calls": StopReason.TOOL_CALL,
    "function_call": StopReason.TOOL_CALL,
    "content_filter": StopReason.GATED,
}
_LONGEST_LINE = 80
_INTERVAL = 2 * 1.96
"""Standard errors that an interval of 95 % has."""
SPARE = 4
"""So many tokens of a context servers leave free, or add to a text."""
_REASONS_BY_NAME = {each.value: each for each in StopReason}


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None


class _Cached(msgspec.Struct):
    cached_tokens: _Count | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: _Count = 0
    completion_tokens: _Count = 0
    prompt_tokens_details: _Cached | None = None


class _Timings(msgspec.Struct):
    draft_n: _Count = 0
    draft_n_accepted: _Count = 0


class _Gain(msgspec.Struct):
    ratio: Annotated[float, msgspec.Meta(gt=0, lt=1e3)]
    low: Annotated[float, msgspec.Meta(gt=0, lt=1e3)]
    high: Annotated[float, msgspec.Meta(gt=0, lt=1e3)]


class _Speculation(msgspec.Struct):
    gain: _Gain | None = None
    drafted: _Count = 0
    accepted: _Count = 0
    reason: Any = None
    line: Any = None


class _Progress(msgspec.Struct):
    total: _Count = 0
    cache: _Count = 0
    processed: _Count = 0


class _Own(msgspec.Struct):
    stop_reason: str = ""


class Chunk(msgspec.Struct):
    """A part of a stream. Fields beyond OpenAI's are those of llama-server (`timings`, `prompt_progress`) and localspec.

    Of an error, `object` is `error` where nothing else says so.
    """

    choices: list[_Choice] = []
    usage: _Usage | None = None
    timings: _Timings | None = None
    speculation: _Speculation | None = None
    prompt_progress: _Progress | None = None
    localspec: _Own | None = None
    error: Any = None
    object: Any = None


@dataclass(slots=True, eq=False)
class RemoteReply:
    """One reply as it comes.

    Args:
        request: its seed is set.
        offer: the calls that it may have; what it calls beyond that is left out.
        prompt_tokens: about how many, until the server says so.
        n_ctx: tokens of the context; 0 where the server does not say.

    Attributes:
        ended: whether the server has given its reason to end.
    """

    request: Request
    offer: CallOffer
    prompt_tokens: int
    n_ctx: int = 0
    ended: bool = False
    _start_s: float = field(default_factory=time.perf_counter)
    _first_s: float | None = None
    _last_s: float = 0.0
    _filter: ThinkingFilter = field(init=False)
    _text: str = ""
    _thoughts: str = ""
    _pieces: int = 0
    _calls: list[ToolCall] = field(default_factory=list)
    _open: dict[int, int | None] = field(default_factory=dict)
    _reason: StopReason = StopReason.EOG
    _usage: _Usage | None = None
    _drafted: tuple[int, int] = (0, 0)
    _gained: _Gain | None = None
    _why: str = ""
    _idle: str = ""
    _left_out: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        is_plain = self._goes_on or self.request.raw is not None
        self._filter = ThinkingFilter(() if is_plain else KNOWN_TAGS)

    def begin(self) -> Started:
        """Return the first event: the server has accepted the request."""
        return Started(self.prompt_tokens, 0)

    def take(self, chunk: Chunk) -> Iterator[Event]:
        """Yield the events in a chunk."""
        if (progress := chunk.prompt_progress) is not None:
            done = max(0, progress.processed - progress.cache)
            yield Prefilling(done, max(done, progress.total - progress.cache))
        if chunk.usage is not None:
            self._usage = chunk.usage
        if chunk.timings is not None and chunk.timings.draft_n:
            self._drafted = chunk.timings.draft_n, chunk.timings.draft_n_accepted
        if chunk.speculation is not None:
            self._drafted = chunk.speculation.drafted, chunk.speculation.accepted
            self._gained = chunk.speculation.gain
            reason, line = chunk.speculation.reason, chunk.speculation.line
            self._why = reason if isinstance(reason, str) else ""
            self._idle = printable_line(line)[:_LONGEST_LINE] if isinstance(line, str) else ""
        for choice in chunk.choices[:1]:
            delta = choice.delta or _Delta()
            if thoughts := delta.reasoning_content or delta.reasoning:
                self._note_piece()
                yield from self._texts([Text(thoughts, thinking=True)])
            if words := delta.content or choice.text:
                self._note_piece()
                yield from self._texts(self._filter.feed(words))
            for call in delta.tool_calls or ():
                yield from self._call(call)
            if choice.finish_reason:
                self._end(choice.finish_reason, chunk.localspec)

    def _end(self, finish: str, own: _Own | None) -> None:
        self.ended = True
        self._reason = _REASONS.get(finish, StopReason.EOG)
        if own is not None:
            self._reason = _REASONS_BY_NAME.get(own.stop_reason, self._reason)

    def _note_piece(self) -> None:
        """Count a piece of the answer, which is a token of most servers."""
        self._last_s = time.perf_counter()
        self._first_s = self._first_s or self._last_s
        self._pieces += 1

    def _texts(self, texts: list[Text]) -> Iterator[Event]:
        for each in texts:
            if each.thinking:
                self._thoughts += each.text
            else:
                self._text += each.text
            yield each

    def _call(self, part: _Call) -> Iterator[Event]:
        """Yield what a part of a call adds. Some servers repeat id and name in every part, or number no call."""
        function = part.function or _Function()
        last = max(self._open, default=-1)
        at = last + bool(function.name) if part.index is None else part.index
        if at not in self._open:
            if not function.name:
                return
            yield from self._begin(at, part.id, function.name)
        number = self._open[at]
        if number is not None and function.arguments:
            self._note_piece()
            call = self._calls[number]
            whole = call.arguments + function.arguments
            self._calls[number] = msgspec.structs.replace(call, arguments=whole)
            yield CallDelta(call.id, function.arguments)

    def _begin(self, at: int, number: str | None, name: str) -> Iterator[Event]:
        names = [*(each.name for each in self._calls), name]
        if self.offer.allowed(names) < len(names):
            self._open[at] = None
            self._left_out.append(name)
            return
        if not number or any(each.id == number for each in self._calls):
            number = secrets.token_hex(5)[:9]
        self._open[at] = len(self._calls)
        self._calls.append(ToolCall(number, name, ""))
        yield CallBegun(number, name)

    def finish(self, reason: StopReason | None = None) -> Iterator[Event]:
        """Yield the last events; a reason is why it was ended here, and not by the server."""
        yield from self._texts(self._filter.feed("", final=True))
        for call in self._calls:
            yield CallDone(call)
        policy, tools = self.request.call_policy, self.request.tools
        if reason is None and not self._calls and policy.lenient and self.offer.names:
            offered = [each for each in tools if each.name in self.offer.names]
            for event in written_calls(
                self._text, offered, self.offer, lambda: secrets.token_hex(5)[:9]
            ):
                if isinstance(event, CallDone):
                    self._calls.append(event.call)
                yield event
        reply = self._reply(reason)
        drafting = "" if reply.acceptance.drafted else self._idle or "drafting is the server's"
        yield Finished(reply, self._whole(reply), reason=self._why, no_drafting=drafting)

    def _reply(self, reason: StopReason | None) -> Reply:
        usage = self._usage or _Usage(self.prompt_tokens, self._pieces)
        cached = usage.prompt_tokens_details and usage.prompt_tokens_details.cached_tokens
        most, counted = self.request.options.max_tokens, usage.completion_tokens
        ending = reason or self._reason
        is_full = 0 < self.n_ctx <= usage.prompt_tokens + counted + SPARE
        if ending is StopReason.LENGTH and is_full and (most is None or counted < most):
            ending = StopReason.CONTEXT_FULL
        if ending in {StopReason.EOG, StopReason.TOOL_CALL}:
            ending = StopReason.TOOL_CALL if self._calls else StopReason.EOG
        drafted, accepted = self._drafted
        stats = AcceptanceStats(drafted=drafted, accepted=min(accepted, drafted))
        first = None if self._first_s is None else self._first_s - self._start_s
        gain, spent_s = None, self._last_s - self._start_s
        if (told := self._gained) is not None and drafted and first is not None:
            error = abs(math.log(told.high / told.low)) / _INTERVAL
            gain = Gain(told.ratio * spent_s, spent_s, error)
        left_out = ", ".join(dict.fromkeys(self._left_out))[:200]
        reply = Reply(
            text=self._text,
            thinking=self._thoughts,
            tokens=(),
            stop_reason=ending,
            seed=self.request.options.seed or 0,
            prompt_tokens=usage.prompt_tokens or self.prompt_tokens,
            cached_tokens=cached or 0,
            completion_tokens=counted or self._pieces,
            first_token_s=first,
            prefill_s=first or 0.0,
            decode_s=self._last_s - (self._first_s or self._last_s),
            spent=Spent(),
            drafter=SERVER,
            acceptance=replace(stats, by_drafter={SERVER: stats}) if drafted else stats,
            gain=gain,
            no_gain="the server does not say" if drafted and gain is None else "",
            calls=tuple(self._calls),
            note=f"left out calls that the rules do not allow: {left_out}" if left_out else "",
        )
        return reply.noted()

    def _whole(self, reply: Reply) -> Message:
        """Return the whole turn, with the part of a continued one before it."""
        turn = reply.message
        if not self._goes_on:
            return turn
        last = self.request.messages[-1]
        whole = Message.assistant(last.text + turn.text, last.thinking + turn.thinking)
        return replace(whole, parts=(*whole.parts, *last.calls, *turn.calls))

    @property
    def _goes_on(self) -> bool:
        return self.request.raw is None and self.request.messages[-1].role == "assistant"
