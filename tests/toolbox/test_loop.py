import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from localspec.calls import Tool
from localspec.messages import Message, ToolCall, ToolResult
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

    def __init__(self, box: Box, decisions: Sequence[Decision] = (), rules: Rules | None = None, rounds: int = 25) -> None:  # fmt: skip
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
RULES = Rules(
    allow=(Rule("look"), Rule("write", "a")), deny=(Rule("*", "secret"), Rule("run", "b"))
)
NO_SECRETS = Rules(deny=(Rule("look", "secret"),))


def calls(*texts: str) -> list[ToolCall]:
    return [ToolCall(f"c{n}", *text.split(" ", 1)) for n, text in enumerate(texts)]


def test_each_call_is_asked_about_and_has_a_result_in_order() -> None:
    tools = Asking(box := Box(), [YES, NO])
    results = tools.results(calls("write a", "run b"), threading.Event())
    assert [(each.call_id, each.text, each.is_error) for each in results] == [
        ("c0", "done", False), ("c1", "the user refused this call: too soon", True)
    ]  # fmt: skip
    assert box.called == ["write a"]
    assert [each.begun for each in tools.carried_out] == [True, False]


def test_always_is_for_calls_like_it_alone() -> None:
    tools = Asking(box := Box(), [ALWAYS] * 9)
    wanted = ["look a", "look b", "write a", "write a", "write b", "run a", "run a", "run b"]
    tools.results(calls(*wanted), threading.Event())
    assert tools.questions == ["look a", "write a", "write b", "run a", "run b"]
    assert box.called == wanted
    tools.permissions.forget()
    tools.results(calls("look a"), threading.Event())
    assert tools.questions[-1] == "look a"
    for access, subject, scope in (
        (Access.READ, "a", "all reading in this folder"), (Access.WRITE, "a", "f on this file"),
        (Access.RUN, "ls", "this command"), (Access.RUN, "", "every f"),
    ):  # fmt: skip
        proposal = Proposal(access, "f", subject=subject)
        assert Permissions(Rules()).scope(ToolCall("c", "f", "{}"), proposal) == scope


@pytest.mark.parametrize(
    ("rules", "decisions", "wanted", "questions", "called"),
    [
        # Once is once; rules come first, a refusal before all; a rule refuses what is granted.
        (Rules(), [YES, YES], ["look a"] * 2, ["look a"] * 2, ["look a"] * 2),
        (RULES, [NO], ["look x", "write a", "look secret", "write b", "run b"], ["write b"], ["look x", "write a"]),
        (NO_SECRETS, [ALWAYS], ["look a", "look secret"], ["look a"], ["look a"]),
    ],
)  # fmt: skip
def test_decisions_and_rules(
    rules: Rules, decisions: list[Decision], wanted: list[str], questions: list[str], called: list[str]
) -> None:  # fmt: skip
    tools = Asking(box := Box(), decisions, rules)
    results = tools.results(calls(*wanted), threading.Event())
    assert (tools.questions, box.called) == (questions, called)
    for text, result in zip(wanted, results, strict=True):
        assert result.is_error is (text not in called)
        assert ("rules forbid" in result.text) is (text in {"look secret", "run b"})


def test_what_cannot_be_called_or_fails_is_a_result() -> None:
    def fail(_: threading.Event) -> str:
        raise KeyError("x")

    tools = Asking(box := Box(does=fail), [YES])
    for call, word in (("nothing x", "no function"), ("look wrong", "no such place"), ("run a", "KeyError")):  # fmt: skip
        (result,) = tools.results(calls(call), threading.Event())
        assert result.is_error
        assert word in result.text
    assert (tools.questions, box.called) == (["run a"], ["run a"])


def test_a_stop_ends_what_runs_and_what_waits_and_leaves_a_whole_conversation() -> None:
    stop, rounds = threading.Event(), list[Sequence[Message]]()

    def stopped(same: threading.Event) -> str:
        stop.set()
        assert same.is_set()
        return "stopped by the user"

    def answer(results: Sequence[Message]) -> Sequence[ToolCall]:
        rounds.append(results)
        return calls("run a", "run b")

    tools = Asking(box := Box(does=stopped), [YES])
    tools.converse(answer, stop)
    assert rounds == [()]
    assert box.called == ["run a"]
    assert [each.result.call_id for each in tools.carried_out] == ["c0", "c1"]
    assert "not carried out" in tools.carried_out[1].result.text


def test_a_model_that_goes_round_in_circles_ends() -> None:
    tools = Asking(box := Box(), [ALWAYS], rounds=3)
    choices, roles = [], list[str]()

    def answer(results: Sequence[Message]) -> Sequence[ToolCall]:
        choices.append(tools.policy.choice)
        roles.extend(each.role for each in results)
        assert len(tools.tools) == 3, "the prompt begins the same to the end"
        return calls("look a")

    tools.converse(answer, threading.Event())
    assert choices == ["auto", "auto", "auto", "none"]
    assert roles == ["tool"] * len(box.called) == ["tool"] * 3
    tools.begin()
    assert tools.policy.choice == "auto"


def test_a_model_that_repeats_what_fails_has_to_answer() -> None:
    """Of two calls in a reply, one that is new lets it go on; after one that goes well, tests may fail again."""
    tools = Asking(box := Box(), [NO] * 9, RULES)
    replies = iter([["look wrong"], ["look wrong"], ["look a"], ["look wrong"], *3 * [["look wrong", "run a"]]])  # fmt: skip
    choices = list[str]()

    def answer(_results: Sequence[Message]) -> Sequence[ToolCall]:
        choices.append(tools.policy.choice)
        return [] if choices[-1] == "none" else calls(*next(replies))

    tools.converse(answer, threading.Event())
    assert (choices, box.called) == (["auto"] * 7 + ["none"], ["look a"])
    tools.begin()
    assert tools.policy.choice == "auto"
