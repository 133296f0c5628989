"""ToolLoop: rounds of calls, each call proposed, refused or allowed, and carried out. One place for all ways in.

reply → calls → `results` → reply → … → a reply without calls
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from localspec.calls import Tool
from localspec.calls.policy import WITH_APPROVAL, CallPolicy
from localspec.messages import Message, ToolCall, ToolResult
from localspec.toolbox.permissions import Decision, Permissions
from localspec.toolbox.toolbox import Proposal, Starting, Toolbox

MOST_ROUNDS = 25
"""Replies with calls to one question, at most: a model that goes round in circles ends."""
_MOST_FAILURES = 3
"""How often the same call may fail or be refused while no other goes well: small models go on with it for ever."""
_NOT_BEGUN = "this call was not carried out: the user stopped"


@dataclass(frozen=True, slots=True)
class CarriedOut:
    """A call that was carried out, or refused.

    Args:
        call: the call.
        result: as the model reads it.
        seconds: that it took, without the question; 0 where nothing was done.
        begun: whether anything was done.
    """

    call: ToolCall
    result: ToolResult
    seconds: float = 0.0
    begun: bool = False


class ToolLoop:
    """Carries out the calls of a conversation. This one allows every call; one that asks overrides `decide`.

    Args:
        boxes: the functions; of two with one name, the first counts.
        permissions: what needs no question.
        policy: which functions may be called, how often and in what order. A call that it requires is required of the
            first reply to a question alone.
        most_rounds: replies with calls to one question; the next must have none.
    """

    def __init__(
        self,
        boxes: Sequence[Toolbox],
        permissions: Permissions,
        policy: CallPolicy = WITH_APPROVAL,
        most_rounds: int = MOST_ROUNDS,
    ) -> None:
        self._boxes, self.permissions = tuple(boxes), permissions
        self._policy, self._most_rounds = policy, most_rounds
        self.begin()

    def decide(self, call: ToolCall, proposal: Proposal, stop: threading.Event) -> Decision:  # noqa: ARG002
        """Return whether a call is carried out; once `stop` is set, soon."""
        return Decision(allowed=True)

    def began(self, call: ToolCall, proposal: Proposal) -> None:
        """Take note that a call is carried out now."""

    def ended(self, done: CarriedOut) -> None:
        """Take note of the result of a call."""

    def ready(self, stop: threading.Event) -> None:
        """Wait until all functions are there, or are given up, or until `stop` is set."""
        for each in self._boxes:
            if isinstance(each, Starting):
                each.ready(stop)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """What there is to call now."""
        tools = {each.name: each for box in reversed(self._boxes) for each in box.tools}
        return tuple(reversed(tools.values()))

    @property
    def policy(self) -> CallPolicy:
        """Which of them the next reply may call. All are in every prompt, so that it begins the same."""
        if self._rounds >= self._most_rounds:
            return replace(self._policy, choice="none")
        return replace(self._policy, choice="auto") if self._rounds else self._policy

    def begin(self) -> None:
        """Count from the start: there is another question."""
        self._rounds, self._failures = 0, Counter[tuple[str, str]]()

    def converse(
        self, answer: Callable[[Sequence[Message]], Sequence[ToolCall]], stop: threading.Event
    ) -> None:
        """Have a question answered, up to a reply without calls, or until it is stopped.

        Args:
            answer: takes the results of the last calls, and returns the calls of the reply to them.
            stop: once set, it ends with the reply or the results that it is at.
        """
        self.begin()
        calls = answer(())
        while calls and self._rounds < self._most_rounds:
            results = self.results(calls, stop)
            if stop.is_set():
                return
            calls = answer([Message("tool", (each,)) for each in results])

    def results(self, calls: Sequence[ToolCall], stop: threading.Event) -> tuple[ToolResult, ...]:
        """Return a result for every call of a reply, in order. Nothing is raised: an error is a result.

        Args:
            calls: of one reply.
            stop: once set, what runs ends soon, and what has not begun does not.
        """
        self._rounds += 1
        results, repeated = [], 0
        for each in calls:
            done = self._done(each, stop)
            self.ended(done)
            results.append(done.result)
            if not done.result.is_error:
                self._failures.clear()  # what failed before may go well now
                continue
            self._failures[each.name, each.arguments] += 1
            repeated += self._failures[each.name, each.arguments] >= _MOST_FAILURES
        if 0 < repeated == len(results):
            self._rounds = self._most_rounds  # the next reply has to do without
        return tuple(results)

    def _done(self, call: ToolCall, stop: threading.Event) -> CarriedOut:
        if stop.is_set():
            return _refused(call, _NOT_BEGUN)
        box = next((b for b in self._boxes if any(t.name == call.name for t in b.tools)), None)
        if box is None:
            known = ", ".join(each.name for each in self.tools)
            return _refused(call, f"there is no function {call.name[:60]}: use {known}")
        proposal = box.propose(call)
        error = proposal.error or self.permissions.refusal(call, proposal)
        if error is not None:
            return _refused(call, error)
        if not self.permissions.allowed(call, proposal):
            decision = self.decide(call, proposal, stop)
            if not decision.allowed:
                why = f": {decision.reason}" if decision.reason else ""
                return _refused(call, f"the user refused this call{why}")
            if decision.always:
                self.permissions.grant(call, proposal)
        self.began(call, proposal)
        began_s = time.monotonic()
        try:
            result = box.call(call, stop)
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            result = ToolResult(call.id, f"{call.name} failed ({reason})", is_error=True)
        return CarriedOut(call, result, time.monotonic() - began_s, begun=True)

    def close(self) -> None:
        """End what the functions started."""
        for each in self._boxes:
            each.close()


def _refused(call: ToolCall, why: str) -> CarriedOut:
    return CarriedOut(call, ToolResult(call.id, why, is_error=True))
