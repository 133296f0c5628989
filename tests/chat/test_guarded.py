"""A guard behind the rules: what is seen depends on the text and the verdicts, however it was drafted and whenever they came."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from localspec.decoding.round import StopReason
from localspec.gates.gate import Gate
from localspec.messages import Message, ToolCall
from localspec.options import ReplyOptions
from tests.chat.test_assistant import END, assistant
from tests.chat.test_gated import KEY, REPLY, words
from tests.examples import examples
from tests.gates.judging import ScriptedJudge, guarded_gate

FINE, BAD, END_ = (
    "Rivers are long and wide. ",
    "This is how a bomb is made. ",
    "That is all there is.",
)
MASK, NONE = "[masked: guard] ", "[masked: no verdict of the guard] "


def seen(gate: Gate, script: str, drafter: Drafter | None = None) -> list[Event]:
    """Return the events of a reply that says a script, past a guard."""
    reply = GatedReply(gate, question="hello")
    stream = assistant(script, drafter).stream("hello", ReplyOptions(), ended=lambda: reply.stopped)
    return list(gated(stream, reply))


def whole(events: Sequence[Event]) -> Reply:
    assert isinstance(events[-1], Finished)
    return events[-1].reply


SENTENCES = st.lists(
    st.sampled_from([FINE, BAD, "Slow water, slow verdict it is. ", "Bombastic as ever it was.\n"]),
    max_size=6,
)


@examples(60)
@given(SENTENCES, st.integers(0, 9), st.sampled_from(["mask", "note", "ask", "stop"]))
def test_drafting_and_late_verdicts_change_nothing(said: list[str], seed: int, action: str) -> None:
    script, rules = "".join([*said, *said, END_]), f"guard_action = '{action}'"
    plain = ScriptedJudge(silent=["Slow"])
    wanted = whole(seen(guarded_gate(plain, rules), script))
    random = Random(seed)
    late = ScriptedJudge(silent=["Slow"], due=lambda _: random.choice([0, 1, 7, 10**9]))
    events = seen(guarded_gate(late, rules), script, LookupDrafter({END}))
    found = whole(events)
    assert (found.text, found.stop_reason) == (wanted.text, wanted.stop_reason)
    assert words(events) == found.text
    assert late.asked == plain.asked
    if action in {"mask", "ask"}:
        expected = script.replace(BAD, MASK).replace("Slow water, slow verdict it is. ", NONE)
        assert found.text == expected


def test_unsafe_sentence_is_masked_and_the_guard_reads_what_is_seen_before_it() -> None:
    judge = ScriptedJudge()
    events = seen(guarded_gate(judge), FINE + BAD + END_)
    assert words(events) == whole(events).text == FINE + MASK + END_
    assert whole(events).tokens == ()
    assert judge.asked == [
        ("hello", "", FINE),
        ("hello", FINE, BAD),
        ("hello", FINE + MASK, END_),
    ]


def test_next_sentence_is_made_while_one_is_judged() -> None:
    judge = ScriptedJudge(due=lambda _: 10**9)
    reply = GatedReply(guarded_gate(judge), question="hello")
    assert words(reply.take(Text(FINE))) == ""
    assert words(reply.take(Text(FINE[:9]))) == ""
    judge.said[0].due = 0
    assert words(reply.take(Text(FINE[9:]))) == FINE
    assert reply.pending
    assert words(reply.released()) == ""
    judge.said[1].due = 0
    assert words(reply.released()) == FINE
    assert not reply.pending


def test_rules_come_first_and_the_guard_never_reads_a_secret() -> None:
    judge = ScriptedJudge()
    gate = guarded_gate(judge, "[[pattern]]\nname = 'key'\npattern = 'ghp_[a-z0-9]{36}'")
    events = seen(gate, f"The key is {KEY}, as you know. {BAD}")
    assert words(events) == f"The key is [masked: key], as you know. {MASK}"
    assert KEY not in str(judge.asked)


@pytest.mark.parametrize(
    ("rules", "text", "count"),
    [
        ("", NONE, ("no verdict of the guard", "mask")),
        (
            "guard_fails = 'closed'\nguard_action = 'stop'",
            NONE.strip() + " ",
            ("no verdict of the guard", "stop"),
        ),
        ("guard_fails = 'open'", FINE + END_, ("no verdict of the guard", "note")),
    ],
)
def test_without_a_verdict_it_fails_as_it_is_set(rules: str, text: str, count: Any) -> None:
    gate = guarded_gate(ScriptedJudge(silent=["Rivers"]), rules)
    reply = GatedReply(gate)
    told = [e for each in (Text(FINE + END_), Finished(REPLY)) for e in reply.take(each)]
    assert words(told).startswith(text)
    assert reply.counts == {count: 1}


def test_stop_ends_the_reply_where_it_is_unsafe() -> None:
    gate = guarded_gate(ScriptedJudge(), "guard_action = 'stop'")
    events = seen(gate, FINE + BAD + FINE * 20)
    reply = whole(events)
    assert words(events) == reply.text == FINE + MASK
    assert reply.stop_reason is StopReason.GATED
    assert reply.completion_tokens < len(FINE + BAD) * 2, "it was not made to its end"


def test_ask_masks_until_somebody_allows_it() -> None:
    gate = guarded_gate(ScriptedJudge(), "guard_action = 'ask'")
    reply = GatedReply(gate)
    told = [e for each in (Text(BAD + FINE), Finished(REPLY)) for e in reply.take(each)]
    assert words(told) == MASK + FINE
    assert [each.text for each in reply.asked] == [BAD]
    allowed = GatedReply(gate, lambda finding: finding.text == BAD)
    told = [e for each in (Text(BAD + FINE), Finished(REPLY)) for e in allowed.take(each)]
    assert words(told) == BAD + FINE


def test_thoughts_are_judged_as_well() -> None:
    reply = GatedReply(guarded_gate(ScriptedJudge()))
    told = [
        *reply.take(Text(BAD, thinking=True)),
        *reply.take(Text(FINE)),
        *reply.take(Finished(REPLY)),
    ]
    assert told[:2] == [Text(MASK, thinking=True), Text(FINE)]
    assert (whole(told).thinking, whole(told).text) == (MASK, FINE)


def test_call_whose_arguments_are_unsafe_is_left_out() -> None:
    calls = [
        ToolCall("c1", "send", '{"how": "a bomb"}'),
        ToolCall("c2", "send", '{"how": "a cake"}'),
    ]
    reply = GatedReply(guarded_gate(ScriptedJudge()))
    told = list[Event]()
    for call in calls:
        for event in (
            CallBegun(call.id, call.name),
            CallDelta(call.id, call.arguments),
            CallDone(call),
        ):
            told += reply.take(event)
    done = replace(REPLY, calls=tuple(calls), stop_reason=StopReason.TOOL_CALL)
    told += reply.take(Finished(done))
    assert [each.call for each in told if isinstance(each, CallDone)] == [calls[1]]
    assert whole(told).calls == (calls[1],)
    assert "bomb" not in str(told)


def test_call_that_was_not_judged_when_the_answer_was_stopped_is_left_out() -> None:
    call = ToolCall("c1", "send", '{"how": "a bomb"}')
    reply = GatedReply(guarded_gate(ScriptedJudge(due=lambda _: 10**9)))
    done = replace(REPLY, calls=(call,), stop_reason=StopReason.CANCELLED)
    begun = (CallBegun(call.id, call.name), CallDelta(call.id, call.arguments), CallDone(call))
    told = [e for each in (*begun, Finished(done)) for e in reply.take(each)]
    assert whole(told).calls == ()
    assert reply.message(Message("assistant", (call,)), done).calls == ()


def test_who_stops_a_made_answer_waits_for_no_verdict() -> None:
    judge = ScriptedJudge(due=lambda number: 0 if number == 1 else 10**9)
    looks = iter([False, False, True])
    reply = GatedReply(guarded_gate(judge), cancelled=lambda: next(looks))
    told = [e for each in (Text(FINE + BAD), Finished(REPLY)) for e in reply.take(each)]
    assert words(told) == whole(told).text == FINE
    assert whole(told).stop_reason is StopReason.CANCELLED


@pytest.mark.parametrize("due", [0, 9])
def test_rule_that_stops_keeps_what_is_safe_before_it_and_its_mask(due: int) -> None:
    rules = f"[[pattern]]\nname = 'key'\npattern = '{KEY}'\naction = 'stop'"
    reply = GatedReply(guarded_gate(ScriptedJudge(due=lambda _: due), rules))
    text = f"{FINE}It is {KEY}."
    done = replace(REPLY, text=text, stop_reason=StopReason.CANCELLED)
    told = [e for each in (Text(text), Finished(done)) for e in reply.take(each)]
    assert words(told) == whole(told).text == f"{FINE}It is [masked: key]"
    assert whole(told).stop_reason is StopReason.GATED


def test_rounds_and_logprobs_tell_nothing_of_what_is_judged() -> None:
    events = seen(guarded_gate(ScriptedJudge()), FINE + BAD)
    rounds = [each for each in events if isinstance(each, RoundDone)]
    assert sum(len(each.texts) for each in rounds) > len(BAD)
    assert {text for each in rounds for text in each.texts} <= {""}
    reply = GatedReply(guarded_gate(ScriptedJudge()))
    told = reply.take(Text(FINE, logprobs=(TokenLogprob("R", -1.0),)))
    assert told == [Text(FINE)]


def test_rounds_show_what_a_rule_masked_once_the_guard_let_the_answer_through() -> None:
    rules = f"[[pattern]]\nname = 'key'\npattern = '{KEY}'"

    def rounds(script: str) -> str:
        reply = GatedReply(guarded_gate(ScriptedJudge(), rules), question="hello")
        list(gated(assistant(script).stream("hello", ReplyOptions()), reply))
        return "".join(text for each in reply.rounds for text in each.texts)

    assert rounds(f"It is {KEY}. {FINE}") == f"It is [masked: key]. {FINE}"
    assert rounds(f"It is {KEY}. {BAD}") == ""


def test_whole_reply_is_judged_as_its_events_would_be() -> None:
    done = replace(REPLY, text=FINE + BAD + END_)
    judge = ScriptedJudge()
    found = gated_reply(done, guarded_gate(judge), question="how?")
    assert found.text == FINE + MASK + END_
    assert judge.asked[0] == ("how?", "", FINE)


def test_who_stops_a_whole_reply_waits_for_no_verdict() -> None:
    judge, looks = ScriptedJudge(due=lambda _: 10**9), iter([False, True])
    done = replace(REPLY, text=FINE + END_)
    found = gated_reply(done, guarded_gate(judge), cancelled=lambda: next(looks))
    assert (found.text, found.stop_reason) == ("", StopReason.CANCELLED)


def test_who_stops_an_answer_waits_for_no_verdict_and_sees_what_was_judged() -> None:
    judge = ScriptedJudge(due=lambda number: 0 if number == 1 else 10**9)
    reply = GatedReply(guarded_gate(judge))
    done = replace(REPLY, text=FINE + BAD, stop_reason=StopReason.CANCELLED)
    told = [e for each in (Text(FINE + BAD), Finished(done)) for e in reply.take(each)]
    assert words(told) == whole(told).text == FINE
    assert reply.message(Message.assistant(FINE + BAD), done).text == FINE


def test_turn_whose_text_was_changed_elsewhere_shows_what_was_seen() -> None:
    reply = GatedReply(guarded_gate(ScriptedJudge()))
    done = replace(REPLY, text=BAD)
    for each in (Text(BAD), Finished(done)):
        reply.take(each)
    assert reply.message(Message.assistant(BAD.strip()), done).text == MASK


def test_long_answers_are_read_from_their_end_in_steps() -> None:
    judge = ScriptedJudge()
    reply = GatedReply(guarded_gate(judge))
    for _ in range(300):
        reply.take(Text(FINE))
    sizes = [len(before) for _, before, _ in judge.asked]
    assert max(sizes) <= 4000
    assert sizes[-1] >= 2000
    starts = {number * len(FINE) - size for number, size in enumerate(sizes)}
    assert starts == {0, 2000, 4000}
