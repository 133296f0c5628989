import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from localspec.calls import Tool
from localspec.messages import Message, TextPart, ToolCall, ToolResult, with_results
from localspec.toolbox.loop import CarriedOut, ToolLoop
from localspec.toolbox.permissions import Decision, Permissions
from localspec.toolbox.rules import Rule, Rules
from localspec.toolbox.toolbox import Access, Proposal


@dataclass
class Box:
    """Three functions; what is called is noted."""

    called: list[str] = field(default_factory=list)
    does: Callable[[threading.Event], str] = lambda _: "done"

    @property
    def tools(self) -> Sequence[Tool]:
        return [Tool(name, {"type": "object"}) for name in ("look", "write", "run")]

    def propose(self, call: ToolCall) -> Proposal:
        access = {"look": Access.READ, "write": Access.WRITE}.get(call.name, Access.RUN)
        error = "no such place" if call.arguments == "wrong" else None
        return Proposal(access, call.name, error=error, subject=call.arguments)

    def call(self, call: ToolCall, stop: threading.Event) -> ToolResult:
        self.called.append(f"{call.name} {call.arguments}")
        return ToolResult(call.id, self.does(stop))

    def close(self) -> None:
        self.called.append("closed")


@dataclass
class Somebody:
    """Answers questions from a list, in order."""

    answers: list[Decision] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    seen: list[CarriedOut] = field(default_factory=list)

    def decide(self, call: ToolCall, proposal: Proposal, stop: threading.Event) -> Decision:
        self.asked.append(f"{call.name} {proposal.subject}")
        return self.answers.pop(0)

    def began(self, call: ToolCall, proposal: Proposal) -> None:
        assert call.name == proposal.summary

    def ended(self, done: CarriedOut) -> None:
        self.seen.append(done)


YES, NO = Decision(allowed=True), Decision(allowed=False, reason="too soon")
ALWAYS = Decision(allowed=True, always=True)


def loop(box: Box, somebody: Somebody, rules: Rules | None = None, rounds: int = 25) -> ToolLoop:
    return ToolLoop([box], Permissions(rules or Rules()), somebody, most_rounds=rounds)


def calls(*texts: str) -> list[ToolCall]:
    return [ToolCall(f"c{n}", *text.split(" ", 1)) for n, text in enumerate(texts)]


def texts(results: Sequence[ToolResult]) -> list[str]:
    return [each.text for each in results]


def test_each_call_is_asked_about_and_has_a_result_in_order() -> None:
    box, somebody = Box(), Somebody([YES, NO])
    found = loop(box, somebody).results(calls("write a", "run b"), threading.Event())
    assert texts(found) == ["done", "the user refused this call: too soon"]
    assert [each.call_id for each in found] == ["c0", "c1"]
    assert [each.is_error for each in found] == [False, True]
    assert box.called == ["write a"]
    assert [each.begun for each in somebody.seen] == [True, False]


def test_always_is_for_calls_like_it_alone() -> None:
    box, somebody = Box(), Somebody([ALWAYS] * 9)
    asked = ["look a", "look b", "write a", "write a", "write b", "run a", "run a", "run b"]
    tools = loop(box, somebody)
    tools.results(calls(*asked), threading.Event())
    assert somebody.asked == ["look a", "write a", "write b", "run a", "run b"]
    assert box.called == asked
    tools.permissions.forget()
    tools.results(calls("look a"), threading.Event())
    assert somebody.asked[-1] == "look a"


@pytest.mark.parametrize(
    ("name", "access", "subject", "told"),
    [
        ("look", Access.READ, "a", "all reading in this folder"),
        ("write", Access.WRITE, "a", "write on this file"),
        ("run", Access.RUN, "ls", "this command"),
        ("server__act", Access.RUN, "", "every server__act"),
    ],
)
def test_what_always_would_allow_is_said(
    name: str, access: Access, subject: str, told: str
) -> None:
    proposal = Proposal(access, name, subject=subject)
    assert Permissions(Rules()).scope(ToolCall("c", name, "{}"), proposal) == told


def test_once_is_once() -> None:
    box, somebody = Box(), Somebody([YES, YES])
    loop(box, somebody).results(calls("look a", "look a"), threading.Event())
    assert len(somebody.asked) == 2


def test_rules_come_first_and_a_refusal_before_all() -> None:
    rules = Rules(allow=(Rule("look"), Rule("write", "a")), deny=(Rule("*", "secret"),))
    box, somebody = Box(), Somebody([NO])
    found = loop(box, somebody, rules).results(
        calls("look x", "write a", "look secret", "write b"), threading.Event()
    )
    assert box.called == ["look x", "write a"]
    assert somebody.asked == ["write b"]
    assert "rules forbid" in found[2].text


def test_what_was_always_allowed_is_still_refused_by_a_rule() -> None:
    box, somebody = Box(), Somebody([ALWAYS])
    rules = Rules(deny=(Rule("look", "secret"),))
    found = loop(box, somebody, rules).results(calls("look a", "look secret"), threading.Event())
    assert box.called == ["look a"]
    assert found[1].is_error


@pytest.mark.parametrize(
    ("call", "word"), [("nothing x", "no function"), ("look wrong", "no such place")]
)
def test_what_cannot_be_called_is_an_error_and_no_question(call: str, word: str) -> None:
    box, somebody = Box(), Somebody()
    (result,) = loop(box, somebody).results(calls(call), threading.Event())
    assert result.is_error
    assert word in result.text
    assert box.called == []


def test_a_function_that_fails_is_a_result() -> None:
    def fail(_: threading.Event) -> str:
        raise KeyError("x")

    (result,) = loop(Box(does=fail), Somebody([YES])).results(calls("run a"), threading.Event())
    assert result.is_error
    assert "KeyError" in result.text


def test_a_stop_ends_what_runs_and_what_waits_and_leaves_a_whole_conversation() -> None:
    stop = threading.Event()

    def stopped(seen: threading.Event) -> str:
        stop.set()
        assert seen.is_set()
        return "stopped by the user"

    box, somebody = Box(does=stopped), Somebody([YES])
    asked = []

    def ask(results: Sequence[Message]) -> Sequence[ToolCall]:
        asked.append(results)
        return calls("run a", "run b")

    loop(box, somebody).converse(ask, stop)
    assert asked == [()]
    assert box.called == ["run a"]
    assert [each.result.call_id for each in somebody.seen] == ["c0", "c1"]
    assert "not carried out" in somebody.seen[1].result.text


def test_a_model_that_goes_round_in_circles_ends() -> None:
    box, somebody = Box(), Somebody([ALWAYS])
    tools = loop(box, somebody, rounds=3)
    choices, heard = [], list[str]()

    def ask(results: Sequence[Message]) -> Sequence[ToolCall]:
        choices.append(tools.policy.choice)
        heard.extend(each.role for each in results)
        assert len(tools.tools) == 3, "the prompt begins the same to the end"
        return calls("look a")

    tools.converse(ask, threading.Event())
    assert choices == ["auto", "auto", "auto", "none"]
    assert heard == ["tool"] * len(box.called) == ["tool"] * 3
    tools.begin()
    assert tools.policy.choice == "auto"


def test_a_call_without_a_result_gets_one() -> None:
    said = Message("assistant", (TextPart("Now."), *calls("look a", "look b")))
    result = Message("tool", (ToolResult("c0", "x"),))
    question = Message.user("And?")
    found = with_results([said, result, question])
    assert [each.role for each in found] == ["assistant", "tool", "tool", "user"]
    assert found[2].parts[0].call_id == "c1"  # type: ignore[union-attr]
    assert with_results(found) == found
    assert with_results([question]) == (question,)
