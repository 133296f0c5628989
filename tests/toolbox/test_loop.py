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


class Asking(ToolLoop):
    """Takes decisions from a list, in order."""

    def __init__(
        self,
        box: Box,
        decisions: Sequence[Decision] = (),
        rules: Rules | None = None,
        rounds: int = 25,
    ) -> None:
        super().__init__([box], Permissions(rules or Rules()), most_rounds=rounds)
        self.decisions = [*decisions]
        self.questions: list[str] = []
        self.carried_out: list[CarriedOut] = []

    def decide(self, call: ToolCall, proposal: Proposal, stop: threading.Event) -> Decision:
        self.questions.append(f"{call.name} {proposal.subject}")
        return self.decisions.pop(0)

    def began(self, call: ToolCall, proposal: Proposal) -> None:
        assert call.name == proposal.summary

    def ended(self, done: CarriedOut) -> None:
        self.carried_out.append(done)


YES, NO = Decision(allowed=True), Decision(allowed=False, reason="too soon")
ALWAYS = Decision(allowed=True, always=True)


def calls(*texts: str) -> list[ToolCall]:
    return [ToolCall(f"c{n}", *text.split(" ", 1)) for n, text in enumerate(texts)]


def texts(results: Sequence[ToolResult]) -> list[str]:
    return [each.text for each in results]


def test_each_call_is_asked_about_and_has_a_result_in_order() -> None:
    tools = Asking(box := Box(), [YES, NO])
    found = tools.results(calls("write a", "run b"), threading.Event())
    assert texts(found) == ["done", "the user refused this call: too soon"]
    assert [each.call_id for each in found] == ["c0", "c1"]
    assert [each.is_error for each in found] == [False, True]
    assert box.called == ["write a"]
    assert [each.begun for each in tools.carried_out] == [True, False]


def test_always_is_for_calls_like_it_alone() -> None:
    tools = Asking(box := Box(), [ALWAYS] * 9)
    asked = ["look a", "look b", "write a", "write a", "write b", "run a", "run a", "run b"]
    tools.results(calls(*asked), threading.Event())
    assert tools.questions == ["look a", "write a", "write b", "run a", "run b"]
    assert box.called == asked
    tools.permissions.forget()
    tools.results(calls("look a"), threading.Event())
    assert tools.questions[-1] == "look a"


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


RULES = Rules(
    allow=(Rule("look"), Rule("write", "a")), deny=(Rule("*", "secret"), Rule("run", "b"))
)
NO_SECRETS = Rules(deny=(Rule("look", "secret"),))


@pytest.mark.parametrize(
    ("rules", "decisions", "wanted", "questions", "called"),
    [
        (Rules(), [YES, YES], ["look a", "look a"], ["look a", "look a"], ["look a", "look a"]),
        (
            RULES,
            [NO],
            ["look x", "write a", "look secret", "write b", "run b"],
            ["write b"],
            ["look x", "write a"],
        ),
        (NO_SECRETS, [ALWAYS], ["look a", "look secret"], ["look a"], ["look a"]),
    ],
    ids=[
        "once is once",
        "rules come first, a refusal before all",
        "a rule refuses what is granted",
    ],
)
def test_decisions_and_rules(
    rules: Rules,
    decisions: list[Decision],
    wanted: list[str],
    questions: list[str],
    called: list[str],
) -> None:
    tools = Asking(box := Box(), decisions, rules)
    results = tools.results(calls(*wanted), threading.Event())
    assert (tools.questions, box.called) == (questions, called)
    for text, result in zip(wanted, results, strict=True):
        assert result.is_error is (text not in called)
        assert ("rules forbid" in result.text) is (text in {"look secret", "run b"})


@pytest.mark.parametrize(
    ("call", "word"), [("nothing x", "no function"), ("look wrong", "no such place")]
)
def test_what_cannot_be_called_is_an_error_and_no_question(call: str, word: str) -> None:
    tools = Asking(box := Box(), ())
    (result,) = tools.results(calls(call), threading.Event())
    assert result.is_error
    assert word in result.text
    assert box.called == []


def test_a_function_that_fails_is_a_result() -> None:
    def fail(_: threading.Event) -> str:
        raise KeyError("x")

    (result,) = Asking(Box(does=fail), [YES]).results(calls("run a"), threading.Event())
    assert result.is_error
    assert "KeyError" in result.text


def test_a_stop_ends_what_runs_and_what_waits_and_leaves_a_whole_conversation() -> None:
    stop = threading.Event()

    def stopped(seen: threading.Event) -> str:
        stop.set()
        assert seen.is_set()
        return "stopped by the user"

    tools = Asking(box := Box(does=stopped), [YES])
    asked = []

    def ask(results: Sequence[Message]) -> Sequence[ToolCall]:
        asked.append(results)
        return calls("run a", "run b")

    tools.converse(ask, stop)
    assert asked == [()]
    assert box.called == ["run a"]
    assert [each.result.call_id for each in tools.carried_out] == ["c0", "c1"]
    assert "not carried out" in tools.carried_out[1].result.text


def test_a_model_that_goes_round_in_circles_ends() -> None:
    tools = Asking(box := Box(), [ALWAYS], rounds=3)
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
