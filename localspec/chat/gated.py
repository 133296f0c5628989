"""GatedReply: the events of a reply as they may be seen, the last filter of its text. It sees what is confirmed, and nothing else: drafting changes no verdict.

Rounds leave once the texts of their tokens are decided, texts as far as they are; all of it in the order in which it came.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

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
    Withheld,
)
from localspec.decoding.round import StopReason
from localspec.gates.gate import USUAL, Gate, gate_of_toml, usual_gate
from localspec.gates.ledger import Decided, Ledger
from localspec.gates.text_gate import Stretch, TextGate, mask_of
from localspec.messages import Message, TextPart, ToolCall

_WHOLE = {StopReason.EOG, StopReason.TOOL_CALL}
"""Endings behind which nothing of a text is missing."""
Counts = Counter[tuple[str, str]]
"""How often a rule found something, and what was done about it."""


@lru_cache(16)
def gate_of(rules: str, source: str = "the gate") -> Gate:
    """Return the gate that a request has: `usual`, or rules as TOML.

    Raises:
        UsageError: they say what is not known; it begins with their source.
    """
    return usual_gate() if rules == USUAL else gate_of_toml(rules, source)


@dataclass(slots=True)
class _Channel:
    """The answer, or the thoughts."""

    gate: TextGate
    thinking: bool
    text: str = ""
    hidden: bool = False

    def feed(self, text: str) -> list[Event]:
        return self._visible(self.gate.feed(text))

    def flush(self, *, cut: bool = False) -> list[Event]:
        return self._visible(self.gate.flush(cut=cut))

    def _visible(self, passed: list[Stretch]) -> list[Event]:
        text = "".join(each.text for each in passed)
        self.text += text
        self.hidden = self.hidden or any(each.hidden for each in passed)
        return [*_withheld(self.gate), *([Text(text, self.thinking)] if text else [])]


class GatedReply:
    """One reply, filtered.

    Args:
        gate: what must not be seen.
    """

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._answer = _Channel(gate.text(), thinking=False)
        self._thoughts = _Channel(gate.text(), thinking=True)
        self._last = self._answer
        self._calls: dict[str, TextGate] = {}
        self._arguments: dict[str, str] = {}
        self._written = gate.text()  # of the rounds, whose texts are all that is written
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

    def take(self, event: Event) -> list[Event]:
        """Take what happened; return what may be seen of it, and of what was held back, by now."""
        match event:
            case Finished(reply=reply, message=message):
                rest = self.flush(cut=reply.stop_reason not in _WHOLE)
                found = tuple((*rule, count) for rule, count in self.counts.items())
                visible = self.message(message, reply)
                return [*rest, Finished(self.of(reply), visible, self.hidden, found)]
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
        return told if self.stopped else [*told, *channel.feed(event.text)]

    def _call(self, event: CallBegun | CallDelta | CallDone) -> list[Event]:
        told: list[Event] = []
        match event:
            case CallBegun(id=name):
                told = self._last.flush()
                self._calls[name], self._arguments[name] = self._gate.text(), ""
            case CallDelta(id=name):
                return [] if self.stopped else self._argue(name, self._calls[name].feed(event.text))
            case CallDone(call=call):
                told = self._argue(call.id, self._calls[call.id].flush())
                event = CallDone(self._seen(call))
        return told if self.stopped else [*told, event]

    def _argue(self, name: str, passed: list[Stretch]) -> list[Event]:
        text = "".join(each.text for each in passed)
        self._arguments[name] += text
        return [
            *_withheld(self._calls[name], in_call=True),
            *([CallDelta(name, text)] if text else []),
        ]

    def _seen(self, call: ToolCall) -> ToolCall:
        return msgspec.structs.replace(call, arguments=self._arguments[call.id])


def _withheld(gate: TextGate, *, in_call: bool = False) -> list[Event]:
    found, gate.asked = gate.asked, []
    return [Withheld(each.rule, each.text, mask_of(each.rule), in_call) for each in found]
