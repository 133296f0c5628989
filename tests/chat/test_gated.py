"""GatedReply: what is seen of a reply is the same however it was drafted, and no event of it has anything of a secret."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from lab.planted import FORMATS, planted
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
from localspec.chat.gated import GatedReply
from localspec.chat.request import Request
from localspec.decoding.drafters.drafter import Drafter
from localspec.decoding.drafters.lookup import LookupDrafter
from localspec.decoding.round import Spent, StopReason
from localspec.errors import UsageError
from localspec.gates.gate import Gate, gate_of_toml, usual_gate
from localspec.messages import Message, ToolCall
from localspec.options import ReplyOptions
from tests.chat.test_assistant import END, assistant
from tests.chat.toy_tokenizer import spelled

USUAL = usual_gate()
KEY = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
MASK = "[masked: GitHub token]"


def seen(
    script: str,
    drafter: Drafter | None = None,
    options: ReplyOptions | None = None,
    rules: str = "usual",
) -> list[Event]:
    """Return the events of a reply that says a script, behind a gate."""
    request = Request(1, (Message.user("hello"),), options or ReplyOptions(), gate=rules)
    return list(assistant(script, drafter).events(request))


def words(events: Sequence[Event]) -> str:
    return "".join(each.text for each in events if isinstance(each, Text))


def written(events: Sequence[Event]) -> str:
    return "".join("".join(each.texts) for each in events if isinstance(each, RoundDone))


def whole(events: Sequence[Event]) -> Reply:
    assert isinstance(events[-1], Finished)
    return events[-1].reply


@pytest.mark.parametrize("which", FORMATS)
def test_nothing_of_a_secret_is_seen_alone_and_under_drafting(which: str) -> None:
    secret = planted(Random(which), which)
    # Twice, so that the second is drafted from the first.
    script = f"Use {secret.text} here. Again: use {secret.text} here."
    wanted = USUAL.cleaned(script)
    assert secret.body not in wanted
    for drafter in (None, LookupDrafter({END})):
        events = seen(script, drafter)
        assert words(events) == whole(events).text == written(events) == wanted
        assert whole(events).tokens == ()
        assert whole(events).stop_reason is StopReason.EOG
        if drafter is not None and len(secret.text) > 30:
            assert whole(events).acceptance.accepted > 20, "it was drafted"


def test_reply_that_is_cut_anywhere_shows_nothing_of_a_secret() -> None:
    secret = planted(Random(3), "GitHub")
    script = f"Use {secret.text} here."
    for size in range(1, len(script)):
        reply = whole(seen(script, None, ReplyOptions(max_tokens=size)))
        shown = reply.text.replace(f"[masked: {secret.rule}]", "")
        assert shown in {"Use ", "Use  here."[: len(shown)], f"Use {secret.head}"[: len(shown)]}


def test_drafting_changes_no_event_but_the_rounds() -> None:
    script = f"a {KEY} b ann@example.org, a {KEY} b ann@example.org. End"

    def told(drafter: Drafter | None) -> tuple[str, str]:
        events = seen(script, drafter)
        return words(events), written(events)

    assert told(None) == told(LookupDrafter({END}))


def test_without_anything_to_hide_all_events_are_as_they_were() -> None:
    script = "Nothing to see: 1 + 1 is 2, at home."
    events = seen(script)
    assert words(events) == written(events) == script
    rounds = [each for each in events if isinstance(each, RoundDone)]
    plain = [each for each in assistant(script).stream("hello") if isinstance(each, RoundDone)]
    assert [each.texts for each in rounds] == [each.texts for each in plain]
    assert whole(events).tokens == tuple(spelled(script))


def test_stop_ends_the_reply_where_the_secret_is() -> None:
    events = seen(f"It is {KEY}. And on and on and on.", rules="[actions]\nsecrets = 'stop'")
    reply = whole(events)
    assert words(events) == reply.text == f"It is {MASK}"
    assert reply.stop_reason is StopReason.GATED
    assert reply.completion_tokens < len(f"It is {KEY}.") + 3, "it was not made to its end"


REPLY = Reply("", "", (1,), StopReason.EOG, 0, 1, 0, 1, None, 0.0, 0.0, Spent(), "off")


def through(*events: Event, gate: Gate = USUAL) -> tuple[list[Event], GatedReply]:
    reply = GatedReply(gate)
    return [told for each in events for told in reply.take(each)], reply


def test_thoughts_end_where_the_answer_begins() -> None:
    told, _ = through(Text("mail ann", thinking=True), Text("@example.org"), Text(" is it."))
    assert told == [
        Text("mail ", thinking=True),
        Text("ann", thinking=True),
        Text("@"),
        Text("example.org is "),
    ]


def test_arguments_of_calls_are_masked_as_they_come_and_as_a_whole() -> None:
    arguments = f'{{"to": "ann@example.org", "key": "{KEY}"}}'
    call = ToolCall("c1", "send", arguments)
    deltas = [CallDelta("c1", arguments[at : at + 3]) for at in range(0, len(arguments), 3)]
    told, reply = through(Text("I send"), CallBegun("c1", "send"), *deltas, CallDone(call))
    wanted = f'{{"to": "[masked: e-mail address]", "key": "{MASK}"}}'
    assert "".join(each.text for each in told if isinstance(each, CallDelta)) == wanted
    assert told[-1] == CallDone(ToolCall("c1", "send", wanted))
    assert told[:2] == [Text("I "), Text("send")], "words come before the call"
    assert reply.counts == {("e-mail address", "mask"): 1, ("GitHub token", "mask"): 1}


def test_logprobs_are_refused_behind_a_gate_in_one_line() -> None:
    request = Request(1, (Message.user("hello"),), logprobs=2, gate="usual")
    with pytest.raises(UsageError, match="logprobs cannot be had behind a gate") as raised:
        list(assistant("Yes.").events(request))
    assert "\n" not in str(raised.value)


def test_rules_of_a_request_that_are_wrong_say_so() -> None:
    with pytest.raises(UsageError, match="the gate: uses is not a known key"):
        list(assistant("Yes.").events(Request(1, (Message.user("hello"),), gate="uses = []")))


def test_what_ask_rules_mask_is_withheld_before_its_text() -> None:
    gate = gate_of_toml("action = 'ask'", "gate")
    call = ToolCall("c1", "send", f'{{"key": "{KEY}"}}')
    told, _ = through(
        Text(f"It is {KEY}, so."),
        CallBegun("c1", "send"),
        CallDelta("c1", call.arguments),
        CallDone(call),
        gate=gate,
    )
    assert told[:2] == [Withheld("GitHub token", KEY, MASK), Text(f"It is {MASK}, ")]
    assert Withheld("GitHub token", KEY, MASK, in_call=True) in told
    assert told[-1] == CallDone(ToolCall("c1", "send", f'{{"key": "{MASK}"}}'))


def test_end_says_what_was_found_and_whether_anything_is_masked() -> None:
    end = seen(f"It is {KEY}.")[-1]
    assert isinstance(end, Finished)
    assert (end.masked, end.findings) == (True, (("GitHub token", "mask", 1),))
    assert end.message == Message.assistant(f"It is {MASK}.")
    end = seen(f"It is {KEY}.", rules="action = 'note'")[-1]
    assert isinstance(end, Finished)
    assert (end.masked, end.findings) == (False, (("GitHub token", "note", 1),))
    assert end.reply.text == f"It is {KEY}."


def test_whole_turn_keeps_what_it_said_before() -> None:
    reply = GatedReply(USUAL)
    told = [*reply.take(Text(f"and {KEY}"))]
    done = replace(REPLY, text=f"and {KEY}")
    told += reply.take(Finished(done, Message.assistant("")))
    message = Message.assistant(f"Before, and {KEY}", "hm")
    assert reply.message(message, done) == Message.assistant(f"Before, and {MASK}", "hm")
    assert whole(told).text == f"and {MASK}"
    assert reply.hidden
