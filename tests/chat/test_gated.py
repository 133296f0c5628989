"""GatedReply: the visible part of a reply is the same however it was drafted, and no event of it has anything of a secret."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

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
from localspec.gates.gate import Gate, gate_of_toml, usual_gate
from localspec.messages import Message, ToolCall
from localspec.options import ReplyOptions
from tests.chat.test_assistant import END, assistant
from tests.chat.toy_tokenizer import spelled
from tests.support.checks import refuses
from tests.support.secrets import FORMATS, planted

USUAL = usual_gate()
KEY = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
MASK = "[masked: GitHub token]"


def gated(
    script: str, drafter: Drafter | None = None, max_tokens: int | None = None, rules: str = "usual"
) -> list[Event]:
    """Return the events of a reply with the text of a script, behind a gate."""
    options = ReplyOptions(max_tokens=max_tokens)
    request = Request(1, (Message.user("hello"),), options, gate=rules)
    return list(assistant(script, drafter).events(request))


def words(events: Sequence[Event]) -> str:
    return "".join(each.text for each in events if isinstance(each, Text))


def written(events: Sequence[Event]) -> str:
    return "".join("".join(each.texts) for each in events if isinstance(each, RoundDone))


def end_of(events: Sequence[Event]) -> Finished:
    assert isinstance(events[-1], Finished)
    return events[-1]


@pytest.mark.first(9)
@pytest.mark.parametrize("which", FORMATS)
def test_nothing_of_a_secret_is_visible_alone_and_under_drafting(which: str) -> None:
    secret = planted(Random(which), which)
    # Twice, so that the second is drafted from the first.
    script = f"Use {secret.text} here. Again: use {secret.text} here."
    wanted = USUAL.cleaned(script)
    assert secret.body not in wanted
    for drafter in (None, LookupDrafter({END})):
        events = gated(script, drafter)
        reply = end_of(events).reply
        assert words(events) == reply.text == written(events) == wanted
        assert (reply.tokens, reply.stop_reason) == ((), StopReason.EOG)
        if drafter is not None and len(secret.text) > 30:
            assert reply.acceptance.accepted > 20, "it was drafted"


def test_a_reply_that_is_cut_anywhere_has_nothing_of_a_secret() -> None:
    secret = planted(Random(3), "GitHub")
    script = f"Use {secret.text} here."
    for size in range(1, len(script)):
        text = end_of(gated(script, max_tokens=size)).reply.text
        text = text.replace(f"[masked: {secret.rule}]", "")
        assert text in {"Use ", "Use  here."[: len(text)], f"Use {secret.head}"[: len(text)]}


def test_stop_ends_a_reply_at_the_secret_and_the_end_counts() -> None:
    script = "Nothing to see: 1 + 1 is 2, at home."
    events = gated(script)
    assert words(events) == written(events) == script
    plain = assistant(script).stream("hello")
    rounds = [[e.texts for e in each if isinstance(e, RoundDone)] for each in (events, plain)]
    assert rounds[0] == rounds[1]
    assert end_of(events).reply.tokens == tuple(spelled(script))
    events = gated(f"It is {KEY}. And on and on and on.", rules="[actions]\nsecrets = 'stop'")
    reply = end_of(events).reply
    assert words(events) == reply.text == f"It is {MASK}"
    assert reply.stop_reason is StopReason.GATED
    assert reply.completion_tokens < len(f"It is {KEY}.") + 3, "it was not made to its end"
    for rules, action, text in (("usual", "mask", MASK), ("action = 'note'", "note", KEY)):
        end = end_of(gated(f"It is {KEY}.", rules=rules))
        found = (("GitHub token", action, 1),)
        assert (end.masked, end.findings) == (action == "mask", found)
        assert end.message == Message.assistant(f"It is {text}.")


REPLY = Reply("", "", (1,), StopReason.EOG, 0, 1, 0, 1, None, 0.0, 0.0, Spent(), "off")


def through(*events: Event, gate: Gate = USUAL) -> tuple[list[Event], GatedReply]:
    reply = GatedReply(gate)
    return [visible for each in events for visible in reply.take(each)], reply


def test_thoughts_end_where_the_answer_begins_and_a_whole_turn_keeps_its_text() -> None:
    events, _ = through(Text("mail ann", thinking=True), Text("@example.org"), Text(" is it."))
    thoughts = [Text("mail ", thinking=True), Text("ann", thinking=True)]
    assert events == [*thoughts, Text("@"), Text("example.org is ")]
    done = replace(REPLY, text=f"and {KEY}")
    events, reply = through(Text(f"and {KEY}"), Finished(done, Message.assistant("")))
    message = Message.assistant(f"Before, and {KEY}", "hm")
    assert reply.message(message, done) == Message.assistant(f"Before, and {MASK}", "hm")
    assert end_of(events).reply.text == f"and {MASK}"
    assert reply.hidden


def test_what_ask_rules_mask_is_withheld_and_arguments_are_masked() -> None:
    arguments = f'{{"to": "ann@example.org", "key": "{KEY}"}}'
    deltas = [CallDelta("c1", arguments[at : at + 3]) for at in range(0, len(arguments), 3)]
    done = CallDone(ToolCall("c1", "send", arguments))
    events, reply = through(Text("I send"), CallBegun("c1", "send"), *deltas, done)
    wanted = f'{{"to": "[masked: e-mail address]", "key": "{MASK}"}}'
    assert "".join(each.text for each in events if isinstance(each, CallDelta)) == wanted
    assert events[-1] == CallDone(ToolCall("c1", "send", wanted))
    assert events[:2] == [Text("I "), Text("send")], "words come before the call"
    assert reply.counts == {("e-mail address", "mask"): 1, ("GitHub token", "mask"): 1}
    gate, said = gate_of_toml("action = 'ask'", "gate"), Text(f"It is {KEY}, so.")
    events, _ = through(said, CallBegun("c1", "send"), *deltas, done, gate=gate)
    assert events[:2] == [Withheld("GitHub token", KEY, MASK), Text(f"It is {MASK}, ")]
    assert Withheld("GitHub token", KEY, MASK, in_call=True) in events
    assert events[-1] == CallDone(ToolCall("c1", "send", wanted))


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({"logprobs": 2, "gate": "usual"}, "logprobs are not available with a gate"),
        ({"gate": "uses = []"}, "the gate: uses is not a known key"),
    ],
)
def test_a_request_that_no_gate_can_serve_is_refused_in_one_line(more: Any, match: str) -> None:
    request = Request(1, (Message.user("hello"),), **more)
    refuses(match, lambda: list(assistant("Yes.").events(request)))
