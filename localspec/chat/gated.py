"""GatedReply: the events of a reply as they may be seen. It sees what is confirmed, and nothing else: drafting changes no verdict.

Rounds leave once the texts of their tokens are decided, texts as far as they are; all of it in the order in which it came.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import msgspec

from localspec.chat.events import (
    CallBegun,
    CallDelta,
    CallDone,
    Event,
    Finished,
    Reply,
    RoundDone,
    Text,
    TokenLogprob,
)
from localspec.decoding.round import StopReason
from localspec.gates.gate import Gate
from localspec.gates.ledger import Decided, Ledger
from localspec.gates.text_gate import Finding, Stretch, TextGate
from localspec.messages import Message, TextPart, ToolCall

_WHOLE = {StopReason.EOG, StopReason.TOOL_CALL}
"""Endings behind which nothing of a text is missing."""
Counts = Counter[tuple[str, str]]
"""How often a rule found something, and what was done about it."""


@dataclass(slots=True)
class _Channel:
    """The answer, or the thoughts: their text, and the logprobs of its tokens."""

    gate: TextGate
    thinking: bool
    text: str = ""
    hidden: bool = False
    _likely: Ledger[TokenLogprob | None] = field(default_factory=Ledger)

    def feed(self, event: Text) -> list[Event]:
        for each, chars in _spelled(event):
            self._likely.add(each, chars)
        return self._told(self.gate.feed(event.text))

    def flush(self, *, cut: bool = False) -> list[Event]:
        return self._told(self.gate.flush(cut=cut))

    def _told(self, passed: list[Stretch]) -> list[Event]:
        text = "".join(each.text for each in passed)
        self.text += text
        self.hidden = self.hidden or any(each.hidden for each in passed)
        decided = self._likely.decide(passed)
        likely = tuple(each.unit for each in decided if each.unit and not each.hidden)
        return [Text(text, self.thinking, likely)] if text else []


class GatedReply:
    """One reply on its way to whoever sees it.

    Args:
        gate: what must not be seen.
        allows: as for `TextGate`.
    """

    def __init__(self, gate: Gate, allows: Callable[[Finding], bool] | None = None) -> None:
        self._gate, self._allows = gate, allows
        self._answer = _Channel(self._open(), thinking=False)
        self._thoughts = _Channel(self._open(), thinking=True)
        self._last = self._answer
        self._calls: dict[str, TextGate] = {}
        self._arguments: dict[str, str] = {}
        # Of the rounds, whose texts are all that is written: an `ask` was decided with the answer.
        self._written = gate.text(lambda _: False)
        self._tokens: Ledger[tuple[RoundDone, int]] = Ledger()
        self._texts: list[str] = []

    @property
    def stopped(self) -> bool:
        """Whether a rule ended the reply; then whoever makes it need not go on."""
        return any(each.stopped for each in self._gates)

    @property
    def hidden(self) -> bool:
        """Whether anything was masked."""
        return any(action != "note" for _, action in self.counts)

    @property
    def counts(self) -> Counts:
        """What was found."""
        whole = Counts()
        for each in self._gates:
            whole.update(each.counts)
        return whole

    @property
    def asked(self) -> list[Finding]:
        """What was masked until somebody says that it may be seen."""
        return [finding for each in self._gates for finding in each.asked]

    def take(self, event: Event) -> list[Event]:
        """Take what happened; return what may be seen of it, and of what was held back, by now."""
        match event:
            case Finished(reply=reply):
                told = self.flush(cut=reply.stop_reason not in _WHOLE)
                return [*told, Finished(self.of(reply))]
            case RoundDone():
                return self._round(event)
            case Text():
                return self._say(event)
            case CallBegun() | CallDelta() | CallDone():
                return self._call(event)
            case _:
                return [event]

    def flush(self, *, cut: bool) -> list[Event]:
        """Return what was held back, at the end of the reply; `cut` is as for `TextGate`."""
        texts = [*self._thoughts.flush(cut=cut), *self._answer.flush(cut=cut)]
        rounds = self._rounds(self._tokens.decide(self._written.flush(cut=cut)))
        return [*rounds, *self._rounds(self._tokens.flush()), *texts]

    def of(self, reply: Reply) -> Reply:
        """Return the whole reply as its events were seen."""
        if not self.hidden:
            return reply
        calls = tuple(self._seen(each) for each in reply.calls if each.id in self._calls)
        return replace(
            reply,
            text=self._answer.text,
            thinking=self._thoughts.text,
            tokens=(),
            stop_reason=StopReason.GATED if self.stopped else reply.stop_reason,
            calls=() if self.stopped else calls,
        )

    def message(self, message: Message, reply: Reply) -> Message:
        """Return a whole turn as it may be seen; what it said before this reply was seen already.

        Args:
            message: the turn.
            reply: what is new of it, as it was made.
        """
        if not self.hidden:
            return message
        seen = self.of(reply)
        words = [each.text for each in message.parts if isinstance(each, TextPart)]
        text = self._behind("".join(words), reply.text, seen.text)
        thinking = self._behind(message.thinking, reply.thinking, seen.thinking)
        parts = (*((TextPart(text),) if text else ()), *seen.calls)
        return replace(message, parts=parts, thinking=thinking)

    def _open(self) -> TextGate:
        return self._gate.text(self._allows)

    @property
    def _gates(self) -> list[TextGate]:
        return [self._thoughts.gate, self._answer.gate, *self._calls.values()]

    def _behind(self, whole: str, new: str, seen: str) -> str:
        """Return a text with what is new of it as it may be seen."""
        if not whole.endswith(new):  # where white space was cut off, say
            return self._gate.cleaned(whole)
        return whole[: len(whole) - len(new)] + seen

    def _round(self, done: RoundDone) -> list[Event]:
        for at, text in enumerate(done.texts):
            self._tokens.add((done, at), len(text))
        if not done.texts:
            self._tokens.add((done, -1), 0)
        return self._rounds(self._tokens.decide(self._written.feed("".join(done.texts))))

    def _rounds(self, tokens: Iterable[Decided[tuple[RoundDone, int]]]) -> list[Event]:
        """Return the rounds whose last token is among these."""
        rounds: list[Event] = []
        for each in tokens:
            done, at = each.unit
            if at >= 0:
                self._texts.append(each.text)
            if at == len(done.texts) - 1:
                rounds.append(msgspec.structs.replace(done, texts=tuple(self._texts)))
                self._texts.clear()
        return rounds

    def _say(self, event: Text) -> list[Event]:
        channel = self._thoughts if event.thinking else self._answer
        told = [] if channel is self._last else self._last.flush()
        self._last = channel
        return told if self.stopped else [*told, *channel.feed(event)]

    def _call(self, event: CallBegun | CallDelta | CallDone) -> list[Event]:
        told: list[Event] = []
        match event:
            case CallBegun(id=name):
                told = self._last.flush()
                self._calls[name], self._arguments[name] = self._open(), ""
            case CallDelta(id=name):
                return [] if self.stopped else self._argue(name, self._calls[name].feed(event.text))
            case CallDone(call=call):
                told = self._argue(call.id, self._calls[call.id].flush())
                event = CallDone(self._seen(call))
        return told if self.stopped else [*told, event]

    def _argue(self, name: str, passed: list[Stretch]) -> list[Event]:
        text = "".join(each.text for each in passed)
        self._arguments[name] += text
        return [CallDelta(name, text)] if text else []

    def _seen(self, call: ToolCall) -> ToolCall:
        return msgspec.structs.replace(call, arguments=self._arguments[call.id])


def gated(events: Iterable[Event], reply: GatedReply) -> Iterator[Event]:
    """Yield the events of a reply as they may be seen; where a rule stops it, the source is told by `stopped` and goes on to its end."""
    for event in events:
        yield from reply.take(event)


def gated_reply(reply: Reply, gate: Gate, counts: Counts | None = None) -> Reply:
    """Return a whole reply as it may be seen.

    Args:
        reply: as it was made.
        gate: what must not be seen.
        counts: gets what was found.
    """
    seen = GatedReply(gate)
    told: list[Event] = []
    for thinking, text in ((True, reply.thinking), (False, reply.text)):
        told += seen.take(Text(text, thinking)) if text else []
    for call in reply.calls:
        begun = (CallBegun(call.id, call.name), CallDelta(call.id, call.arguments), CallDone(call))
        told += [event for each in begun for event in seen.take(each)]
    *_, last = [*told, *seen.take(Finished(reply))]
    if counts is not None:
        counts.update(seen.counts)
    assert isinstance(last, Finished)  # noqa: S101 - it was taken last
    return last.reply


def _spelled(event: Text) -> Iterator[tuple[TokenLogprob | None, int]]:
    """Yield the tokens of a text, each with how many characters it completes; None where they are not told."""
    if not event.logprobs:
        yield None, len(event.text)
        return
    raw = event.text.encode()
    pieces = [each.piece.encode("latin-1") for each in event.logprobs]
    if b"".join(pieces) != raw:
        # Tags and the like are no text: then all of them share the fate of all of it.
        for at, each in enumerate(event.logprobs, 1):
            yield each, len(event.text) if at == len(pieces) else 0
        return
    start = before = 0
    for each, piece in zip(event.logprobs, pieces, strict=True):
        start += len(piece)
        now = len(raw[:start].decode(errors="ignore"))
        yield each, now - before
        before = now
