"""Tools through the engine's process: calls come out, results go in, and a model that cannot says so."""

from collections.abc import Iterator

import pytest

from localspec.calls.policy import CallPolicy
from localspec.chat.events import CallBegun, CallDelta, CallDone, Finished, StreamEvent
from localspec.chat.request import Request
from localspec.engine.protocol import Count, Counted, Failed, ReplyEvents
from localspec.messages import Message, ToolResult
from localspec.options import LaunchOptions, ReplyOptions, SamplingParams
from tests.chat.toy_calls import AREA, NOW, hermes
from tests.engine.double import command
from tests.engine.talking import Talker, hear_all, hear_last

GREEDY = ReplyOptions(SamplingParams(temperature=0), seed=1)
SCRIPT = {
    "calls": True,
    "answers": {"Peru": f"Wait.\n{hermes('area', of='Peru')}", "1285216": "It is large."},
}


def answered(client: Talker, asked: Request) -> tuple[list[StreamEvent], Finished | Failed]:
    number, events = client.question(asked), list[StreamEvent]()
    heard = hear_all(client, number).about(number)
    for each in heard.of(ReplyEvents):
        events += each.events
    last = heard[-1]
    assert isinstance(last, Finished | Failed)
    return events, last


@pytest.fixture(scope="module")
def client() -> Iterator[Talker]:
    made = Talker(command(SCRIPT))
    made.start()
    made.load(LaunchOptions())
    yield made
    made.close()


def test_a_call_goes_out_and_its_result_in(client: Talker) -> None:
    messages = [Message.user("Peru?")]
    events, done = answered(client, Request(0, tuple(messages), GREEDY, tools=(AREA, NOW)))
    assert isinstance(done, Finished)
    (call,) = done.reply.calls
    assert (call.name, call.arguments) == ("area", '{"of": "Peru"}')
    assert done.message.calls == (call,)
    told = [each for each in events if isinstance(each, CallBegun | CallDelta | CallDone)]
    assert told[0] == CallBegun(call.id, "area")
    assert told[-1] == CallDone(call)
    assert "".join(each.text for each in told if isinstance(each, CallDelta)) == call.arguments
    messages += [done.message, Message("tool", (ToolResult(call.id, "1285216"),))]
    _, last = answered(client, Request(0, tuple(messages), GREEDY, tools=(AREA, NOW)))
    assert isinstance(last, Finished)
    assert last.reply.text == "It is large."
    assert last.reply.cached_tokens == done.reply.prompt_tokens + len(done.reply.tokens) - 1


def test_a_policy_goes_in(client: Talker) -> None:
    asked = Request(0, (Message.user("Peru?"),), GREEDY, tools=(AREA,))
    never = Request(0, asked.messages, GREEDY, tools=(AREA,), call_policy=CallPolicy(at_most=(("*", 0),), choice="required"))  # fmt: skip
    _, failed = answered(client, never)
    assert isinstance(failed, Failed)
    assert "allow none now" in failed.reason


def test_tools_count(client: Talker) -> None:
    counted = []
    for tools in ((), (AREA,)):
        number = client.question(Count(0, (Message.user("x"),), tools))
        count = hear_last(client, Counted)
        assert count.id == number
        counted.append(count.tokens)
    assert counted[1] > counted[0] + 100
