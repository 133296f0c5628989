"""GatedReply: the events of a reply, masked; the last filter of its text. It reads confirmed text alone: drafting changes no verdict.

Rounds leave once the texts of their tokens are decided, texts as far as they are; all of it in the order in which it came.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache, partial

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
"""How often a rule matched, and what was done about it."""


@lru_cache(16)
def gate_of(rules: str, source: str = "the gate") -> Gate:
    """Return the gate that a request has: `usual`, or rules as TOML.

    Raises:
        UsageError: they are wrong; the message begins with their source.
    """
    return usual_gate() if rules == USUAL else gate_of_toml(rules, source)


@dataclass(slots=True)
class _Channel:
    """The answer, the thoughts, or the arguments of a call, and what makes events of its text."""

    gate: TextGate
    event: Callable[[str], Event]
    in_call: bool = False
    text: str = ""

    def feed(self, text: str) -> list[Event]:
        return self._events(self.gate.feed(text))

    def flush(self, *, cut: bool = False) -> list[Event]:
        return self._events(self.gate.flush(cut=cut))

    def _events(self, passed: list[Stretch]) -> list[Event]:
        text = "".join([each.text for each in passed])
        self.text += text
        findings, self.gate.findings = self.gate.findings, []
        events: list[Event] = [
            Withheld(each.rule, each.text, mask_of(each.rule), self.in_call) for each in findings
        ]
        return [*events, self.event(text)] if text else events


class GatedReply:
    """One reply, filtered.

    Args:
        gate: rules, and what is done about what they find.
    """

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._answer = self._last = _Channel(gate.text(), Text)
        self._thoughts = _Channel(gate.text(), partial(Text, thinking=True))
        self._calls: dict[str, _Channel] = {}
        self._written = gate.text()  # of the rounds, whose texts are all that is written
        self._tokens: Ledger[tuple[RoundDone, int]] = Ledger()
        self._texts: list[str] = []

    @property
    def stopped(self) -> bool:
        """Whether a rule ended the reply; then there is no more to make of it."""
        calls = self._calls and any(each.gate.stopped for each in self._calls.values())
        return self._answer.gate.stopped or self._thoughts.gate.stopped or bool(calls)

    @property
    def hidden(self) -> bool:
        """Whether anything was masked."""
        return any(action != "note" for _, action in self.counts)

    @property
    def counts(self) -> Counts:
        """How often each rule matched."""
        whole = Counts()
        for each in (self._thoughts, self._answer, *self._calls.values()):
            whole.update(each.gate.counts)
        return whole

    def take(self, event: Event) -> list[Event]:
        """Take an event; return the visible part of it, and of what was held back, by now."""
        match event:
            case Text(text=text, thinking=thinking):
                channel = self._thoughts if thinking else self._answer
                events = [] if channel is self._last else self._last.flush()
                self._last = channel
                events += [] if self.stopped else channel.feed(text)
            case RoundDone(texts=texts):
                for at, text in enumerate(texts):
                    self._tokens.add((event, at), len(text))
                if not texts:
                    self._tokens.add((event, -1), 0)
                events = self._rounds(self._tokens.decide(self._written.feed("".join(texts))))
            case CallBegun(id=number):
                events = self._last.flush()
                delta = partial(CallDelta, number)
                self._calls[number] = _Channel(self._gate.text(), delta, in_call=True)
                events += [] if self.stopped else [event]
            case CallDelta(id=number, text=text):
                events = [] if self.stopped else self._calls[number].feed(text)
            case CallDone(call=call):
                events = self._calls[call.id].flush()
                events += [] if self.stopped else [CallDone(self._call(call))]
            case Finished(reply=reply, message=message):
                events = self.flush(cut=reply.stop_reason not in _WHOLE)
                findings = tuple((*rule, count) for rule, count in self.counts.items())
                turn = self.message(message, reply)
                done = {"message": turn, "masked": self.hidden, "findings": findings}
                events.append(msgspec.structs.replace(event, reply=self.masked(reply), **done))
            case _:
                events = [event]
        return events

    def flush(self, *, cut: bool) -> list[Event]:
        """Return what was held back, at the end of the reply; `cut` is as for `TextGate`."""
        texts = [*self._thoughts.flush(cut=cut), *self._answer.flush(cut=cut)]
        rounds = self._rounds(self._tokens.decide(self._written.flush(cut=cut)))
        return [*rounds, *self._rounds(self._tokens.flush()), *texts]

    def masked(self, reply: Reply) -> Reply:
        """Return the whole reply as its events were."""
        if not self.hidden:
            return reply
        calls = tuple(self._call(each) for each in reply.calls if each.id in self._calls)
        return replace(
            reply,
            text=self._answer.text,
            thinking=self._thoughts.text,
            tokens=(),
            stop_reason=StopReason.GATED if self.stopped else reply.stop_reason,
            calls=() if self.stopped else calls,
        )

    def message(self, message: Message, reply: Reply) -> Message:
        """Return a whole turn, masked; what it said before this reply was masked already.

        Args:
            message: the turn.
            reply: what is new of it, as it was made.
        """
        if not self.hidden:
            return message
        masked = self.masked(reply)
        words = "".join(each.text for each in message.parts if isinstance(each, TextPart))
        text = self._behind(words, reply.text, masked.text)
        thinking = self._behind(message.thinking, reply.thinking, masked.thinking)
        parts = (*((TextPart(text),) if text else ()), *masked.calls)
        return replace(message, parts=parts, thinking=thinking)

    def _behind(self, whole: str, new: str, masked: str) -> str:
        """Return a text whose new part is masked."""
        if not whole.endswith(new):  # where white space was cut off, say
            return self._gate.cleaned(whole)
        return whole[: len(whole) - len(new)] + masked

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

    def _call(self, call: ToolCall) -> ToolCall:
        return msgspec.structs.replace(call, arguments=self._calls[call.id].text)
