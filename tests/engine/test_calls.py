"""Tools through the engine's process: calls come out, results go in, and a model that cannot says so."""

from localspec.calls.policy import CallPolicy
from localspec.chat.events import CallBegun, CallDelta, CallDone
from localspec.engine.protocol import Count, Counted, Failed
from localspec.messages import Message, ToolResult
from tests.chat.toy_calls import AREA, NOW, hermes
from tests.engine.talking import double, hear_last


def test_calls_go_out_and_results_tools_and_rules_go_in() -> None:
    answers = {"Peru": f"Wait.\n{hermes('area', of='Peru')}", "1285216": "It is large."}
    peru, tools = Message.user("Peru?"), (AREA, NOW)
    with double({"calls": True, "answers": answers}) as engine:
        heard = engine.reply([peru], tools=tools)
        done = heard.done
        (call,) = done.reply.calls
        assert (call.name, call.arguments) == ("area", '{"of": "Peru"}')
        assert done.message.calls == (call,)
        assert heard.events(CallBegun) == [CallBegun(call.id, "area")]
        assert "".join(each.text for each in heard.events(CallDelta)) == call.arguments
        assert heard.events(CallDone) == [CallDone(call)]
        result = Message("tool", (ToolResult(call.id, "1285216"),))
        last = engine.reply([peru, done.message, result], tools=tools).done.reply
        assert last.text == "It is large."
        assert last.cached_tokens == done.reply.prompt_tokens + len(done.reply.tokens) - 1
        never = CallPolicy(at_most=(("*", 0),), choice="required")
        failed = engine.reply([peru], tools=tools, call_policy=never)[-1]
        assert isinstance(failed, Failed)
        assert "allow none now" in failed.reason
        counted = []
        for some in ((), tools):
            engine.question(Count(0, (peru,), some))
            counted.append(hear_last(engine, Counted).tokens)
        assert counted[1] > counted[0] + 100
