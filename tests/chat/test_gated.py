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
    TokenLogprob,
)
from localspec.chat.gated import GatedReply, gated, gated_reply
from localspec.decoding.drafters.drafter import Drafter
from localspec.decoding.drafters.lookup import LookupDrafter
from localspec.decoding.round import Spent, StopReason
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
    gate: Gate = USUAL,
) -> list[Event]:
    """Return the events of a reply that says a script, behind a gate."""
    reply = GatedReply(gate)
    speaker = assistant(script, drafter)
    events = speaker.stream("hello", options or ReplyOptions(), ended=lambda: reply.stopped)
    return list(gated(events, reply))


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
    gate = gate_of_toml("[actions]\nsecrets = 'stop'", "gate")
    events = seen(f"It is {KEY}. And on and on and on.", gate=gate)
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


def test_logprobs_of_hidden_tokens_are_not_told() -> None:
    def likely(piece: str) -> TokenLogprob:
        return TokenLogprob(piece, -1.0, ((piece, -1.0), ("ghp_", -2.0)))

    pieces = ["key ", "ghp", "_", *KEY.removeprefix("ghp_"), ",", " so"]
    told, _ = through(
        *(Text(each, logprobs=(likely(each),)) for each in pieces),
        Finished(replace(REPLY, text="".join(pieces))),
    )
    texts = [each for each in told if isinstance(each, Text)]
    assert words(told) == f"key {MASK}, so"
    assert [each.piece for text in texts for each in text.logprobs] == ["key ", ",", " so"]


def test_logprobs_stay_with_their_texts_where_a_character_spans_tokens() -> None:
    first, second = ("é".encode()[at : at + 1].decode("latin-1") for at in (0, 1))
    told, _ = through(
        Text("é", logprobs=(TokenLogprob(first, -1.0), TokenLogprob(second, -1.0))),
        Text("x ", logprobs=(TokenLogprob("x ", -1.0),)),
    )
    assert [each.piece for text in told for each in text.logprobs] == [first, second, "x "]  # type: ignore[union-attr]


def test_whole_turn_keeps_what_it_said_before() -> None:
    reply = GatedReply(USUAL)
    told = [*reply.take(Text(f"and {KEY}"))]
    done = replace(REPLY, text=f"and {KEY}")
    told += reply.take(Finished(done))
    message = Message.assistant(f"Before, and {KEY}", "hm")
    assert reply.message(message, done) == Message.assistant(f"Before, and {MASK}", "hm")
    assert whole(told).text == f"and {MASK}"
    assert reply.hidden


def test_whole_reply_is_seen_as_its_events_would_be() -> None:
    call = ToolCall("c1", "send", f'{{"key": "{KEY}"}}')
    done = replace(
        REPLY,
        text=f"It is {KEY}",
        thinking="ann@example.org?",
        stop_reason=StopReason.TOOL_CALL,
        calls=(call,),
    )
    found = gated_reply(done, USUAL)
    assert (found.text, found.thinking) == (f"It is {MASK}", "[masked: e-mail address]?")
    assert found.calls == (ToolCall("c1", "send", f'{{"key": "{MASK}"}}'),)
    assert (found.tokens, found.stop_reason) == ((), StopReason.TOOL_CALL)
