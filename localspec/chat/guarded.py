"""GuardedEvents: events of a reply, held back by sentences until a guard has judged them. The next sentence is made meanwhile.

Sentences are judged one after the other, each with what may be seen of those before it: so a verdict depends on the text and the verdicts before,
not on how the text came.
"""

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from localspec.chat.events import CallBegun, CallDelta, CallDone, Event, RoundDone, Text
from localspec.gates.guard import GUARD, NO_VERDICT, GuardRules, Judge, Judgement, Verdict
from localspec.gates.sentences import Sentences
from localspec.gates.text_gate import Action, Finding, mask_of

_BEFORE, _STEP = 4000, 2000
"""Characters before a sentence that a guard reads at most, left out in steps, so that what it has evaluated is of use."""
_LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class _Held:
    """Events that wait for one verdict.

    Args:
        events: a sentence, or a call.
        text: what is judged; nothing but white space needs no verdict.
        thinking: whether it belongs to the thoughts.
    """

    events: tuple[Event, ...]
    text: str
    thinking: bool = False


class GuardedEvents:
    """What a guard lets through of one reply.

    Args:
        rules: what is done about verdicts.
        judge: gives them.
        question: what is answered.
        allows: as for `TextGate`.

    Attributes:
        texts: what may be seen of the answer, and under True of the thoughts.
        counts: how often a sentence was found unsafe or had no verdict, and what was done about it.
        asked: what `ask` has masked, in order; in memory alone.
        stopped: whether a verdict ended the reply; nothing is let through any more.
        dropped: whether something was left out that nobody waits for any more.
        hidden_calls: ids of calls that were left out.
    """

    def __init__(
        self,
        rules: GuardRules,
        judge: Judge,
        question: str,
        allows: Callable[[Finding], bool] | None = None,
    ) -> None:
        self._rules, self._judge, self._question, self._allows = rules, judge, question, allows
        self._waiting = deque[_Held]()
        self._judgement: Judgement | None = None
        self._sentences, self._thinking = Sentences(), False
        self._call: list[Event] = []
        self.texts = {False: "", True: ""}
        self.counts: Counter[tuple[str, str]] = Counter()
        self.asked: list[Finding] = []
        self.stopped = self.dropped = False
        self.hidden_calls: set[str] = set()

    @property
    def pending(self) -> bool:
        """Whether something waits for a verdict."""
        return bool(self._waiting)

    def take(self, event: Event) -> list[Event]:
        """Take what happened; return what may be seen by now. Rounds say how many tokens, not which; no text has logprobs."""
        match event:
            case Text():
                self._say(event)
            case CallBegun():
                self._end_sentence()
                self._call = [event]
            case CallDelta():
                self._call.append(event)
            case CallDone(call=call):
                self._waiting.append(_Held((*self._call, event), call.arguments))
                self._call = []
            case RoundDone(texts=texts):
                return [msgspec.structs.replace(event, texts=("",) * len(texts)), *self.released()]
            case _:
                return [event, *self.released()]
        return self.released()

    def end(self) -> list[Event]:
        """End the reply; return what may be seen by now."""
        self._end_sentence()
        return self.released()

    def drop(self) -> None:
        """Leave out what still waits for a verdict."""
        self.dropped = self.dropped or self.pending
        for held in self._waiting:
            self._hide(held)
        self._waiting.clear()

    def released(self) -> list[Event]:
        """Return what may be seen since verdicts have come."""
        return self._decided(waits=False)

    def settled(self, stopped: Callable[[], bool] | None = None) -> list[Event]:
        """Wait for all verdicts, or until somebody has stopped it, and return what may be seen."""
        if stopped is None:
            return self._decided(waits=True)
        told = self.released()
        while self.pending and not stopped():
            time.sleep(_LOOK_S)
            told += self.released()
        self.drop()
        return told

    def _say(self, event: Text) -> None:
        if event.thinking != self._thinking:
            self._end_sentence()
            self._thinking = event.thinking
        for sentence in self._sentences.feed(event.text):
            self._hold(sentence)

    def _end_sentence(self) -> None:
        rest = self._sentences.flush()
        if rest:
            self._hold(rest)

    def _hold(self, sentence: str) -> None:
        said = Text(sentence, self._thinking)
        self._waiting.append(_Held((said,), sentence, self._thinking))

    def _decided(self, *, waits: bool) -> list[Event]:
        told: list[Event] = []
        while self._waiting and not self.stopped:
            verdict = self._verdict(self._waiting[0], waits=waits)
            if verdict is None:
                break
            self._judgement = None
            told += self._seen(self._waiting.popleft(), verdict)
        if self.stopped:
            self._waiting.clear()
        return told

    def _verdict(self, held: _Held, *, waits: bool) -> Verdict | None:
        if not held.text.strip():
            return "safe"
        if self._judgement is None:
            before = self.texts[held.thinking]
            left_out = max(0, -(-(len(before) - _BEFORE) // _STEP)) * _STEP
            self._judgement = self._judge.ask(
                self._question, before[left_out:], held.text, self._rules.wait_s
            )
        return self._judgement.wait() if waits else self._judgement.verdict

    def _seen(self, held: _Held, verdict: Verdict) -> tuple[Event, ...]:
        """Return what may be seen of something that was judged."""
        rule = GUARD if verdict == "unsafe" else NO_VERDICT
        action = self._action(verdict)
        seen = action in {None, "note"}
        if action is not None:
            finding = Finding(rule, action, held.text)
            self.counts[rule, action] += 1
            if action == "ask":
                seen = self._allows is not None and self._allows(finding)
                if not seen:
                    self.asked.append(finding)
        events = held.events if seen else (self._masked(held, rule),)
        for each in events:
            if isinstance(each, Text):
                self.texts[each.thinking] += each.text
        self.stopped = action == "stop"
        return events

    def _action(self, verdict: Verdict) -> Action | None:
        if verdict == "safe":
            return None
        fails_open = verdict == "none" and self._rules.fails == "open"
        return "note" if fails_open else self._rules.action

    def _masked(self, held: _Held, rule: str) -> Text:
        self._hide(held)
        space = held.text[len(held.text.rstrip()) :]
        return Text(mask_of(rule) + space, held.thinking)

    def _hide(self, held: _Held) -> None:
        self.hidden_calls |= {each.id for each in held.events if isinstance(each, CallBegun)}
