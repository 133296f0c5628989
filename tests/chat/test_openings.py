"""Calls as models write them: without their first marker, with an end left over, and in thoughts that never close."""

from collections.abc import Iterable
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.calls import CallFormat
from localspec.calls.openings import closings
from localspec.calls.policy import CallPolicy, OfferedCalls
from localspec.chat.call_finder import call_format
from localspec.chat.call_heads import CallsInThoughts
from localspec.chat.call_parser import CallParser
from localspec.chat.events import CallBegun
from localspec.chat.reply_text import ThinkingFilter
from localspec.chat.thinking import ThinkingTags
from localspec.decoding.drafters.forced import ForcedDrafter
from localspec.decoding.drafters.lookup import LookupDrafter
from localspec.decoding.round import StopReason
from localspec.grammar import Grammars
from localspec.options import ReplyOptions, SamplingParams
from tests.chat.cutting import cut
from tests.chat.test_calling import (
    CONTROL_END,
    TOKENIZER,
    answered,
    assistant,
    limited,
    tool_question,
)
from tests.chat.test_calls import parsed, template
from tests.chat.toy_calls import AREA, HERMES, NOW, hermes
from tests.examples import examples
from tests.grammar.answers import ByteVocabulary

HERMES_CALL = """<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>"""
PAIRS = "{% for key, value in call.function.arguments.items() %}"


def written_so(call: str) -> str:
    """Return a template that writes calls so."""
    assert HERMES_CALL in HERMES
    return HERMES.replace(HERMES_CALL, call)


XML = written_so(
    "<tool_call>\n<function={{ call.function.name }}>\n"
    + PAIRS
    + "<parameter={{ key }}>\n{{ value }}\n</parameter>\n"
    "{% endfor %}</function>\n</tool_call>"
)
GLM = written_so(
    "<tool_call>{{ call.function.name }}\n"
    + PAIRS
    + "<arg_key>{{ key }}</arg_key>\n<arg_value>{{ value }}</arg_value>\n"
    "{% endfor %}</tool_call>"
)
MINIMAX = written_so(
    '<minimax:tool_call>\n<invoke name="{{ call.function.name }}">\n'
    + PAIRS
    + '<parameter name="{{ key }}">{{ value }}</parameter>\n'
    "{% endfor %}</invoke>\n</minimax:tool_call>"
)
KIMI = written_so(
    "<|calls_begin|><|call_begin|>functions.{{ call.function.name }}:{{ loop.index0 }}<|argument_begin|>"
    "{{ call.function.arguments | tojson }}<|call_end|><|calls_end|>"
)
# How each writes a call of `area` of Peru, and one of `now`, when it leaves out the first marker.
BARE = {
    XML: ("<function=area>\n<parameter=of>\nPeru\n</parameter>\n</function>", "<function=now>\n</function>"),
    GLM: ("area\n<arg_key>of</arg_key>\n<arg_value>Peru</arg_value>\n</tool_call>", "now\n</tool_call>"),
    MINIMAX: ('<invoke name="area">\n<parameter name="of">Peru</parameter>\n</invoke>', '<invoke name="now">\n</invoke>'),
    KIMI: ('<|call_begin|>functions.area:0<|argument_begin|>{"of": "Peru"}<|call_end|>', "<|call_begin|>functions.now:0<|argument_begin|>{}<|call_end|>"),
}  # fmt: skip
THINKS = "{# <think></think> #}"
PERU = ("area", '{"of": "Peru"}')


def call_of_area(source: str) -> str:
    return hermes("area", of="Peru") if source == HERMES else BARE[source][0]


def form_of(source: str) -> CallFormat:
    form = call_format(template(source))
    assert form is not None
    return form


def called(script: str, source: str, *, policy: CallPolicy | None = None, most: int = 300) -> Any:
    reply, _ = answered(
        assistant(script, template=source), tool_question(policy=policy), limited(most)
    )
    return reply


@pytest.mark.parametrize("source", BARE)
def test_a_call_without_its_first_marker_is_made(source: str) -> None:
    with_area, without_arguments = BARE[source]
    reply = called(f"I look.\n{with_area}", source)
    assert [(each.name, each.arguments) for each in reply.calls] == [PERU]
    assert (reply.text, reply.stop_reason) == ("I look.", StopReason.TOOL_CALL)
    assert [each.name for each in called(without_arguments, source).calls] == ["now"]
    both = called(f"{with_area}\n{without_arguments}", source)
    assert both.calls[0].name == "area"
    assert both.text == ""


@pytest.mark.parametrize("source", BARE)
def test_what_was_not_offered_and_what_only_mentions_a_call_is_text(source: str) -> None:
    bare = BARE[source][0]
    other = bare.replace("area", "volume")
    inside = bare.replace("area", "the area")
    begun = f"{bare[: bare.index('area') + 4]} is what it writes."
    for text in (other, inside, begun, "area, now\nand area"):
        reply = called(text, source)
        assert not reply.calls
        assert reply.text == text
    denied = called(bare, source, policy=CallPolicy(deny=("area",)))
    assert not denied.calls


@pytest.mark.parametrize("source", BARE)
def test_an_end_that_is_left_over_is_no_text(source: str) -> None:
    (closing, *_) = closings(form_of(source))
    reply = called(f"Nothing to call.\n{closing}\n", source)
    assert reply.text == "Nothing to call."
    assert b"".join(map(TOKENIZER.piece, reply.tokens)) == b"Nothing to call."
    middle = f"It ends with {closing}, mostly."
    assert called(middle, source).text == middle
    whole = f"{form_of(source).trigger} and {closing}"
    assert parsed(form_of(source), [whole]) == ([], whole)


@pytest.mark.parametrize("source", [HERMES, *BARE])
@pytest.mark.parametrize("choice", ["auto", "required"])
@pytest.mark.parametrize("budget", [None, "400"])
def test_a_call_ends_thoughts_that_never_closed(
    source: str, choice: Any, budget: str | None
) -> None:
    form = form_of(source)
    call = f"{form.begin}area{call_of_area(source).partition('area')[2]}"
    for head in ("", "I need the area.\n"):
        conversation = tool_question(policy=CallPolicy(choice=choice))
        script = f"<think>{head}{call}"
        reply, _ = answered(
            assistant(script, template=source + THINKS), conversation, limited(900, think=budget)
        )
        assert [(each.name, each.arguments) for each in reply.calls][:1] == [PERU]
        assert (reply.thinking.strip(), reply.text) == (head.strip(), "")
        assert conversation.messages[-1].thinking.strip() == head.strip()
        assert conversation.messages[-1].calls == reply.calls


@pytest.mark.parametrize("source", [HERMES, *BARE])
def test_thoughts_that_only_mention_a_call_go_on(source: str) -> None:
    form = form_of(source)
    thoughts = f"With {form.trigger} I call area, and {form.begin}volume is none. {form.end}"
    conversation = tool_question()
    reply, _ = answered(
        assistant(f"<think>{thoughts}</think>\n\nNo.", template=source + THINKS), conversation
    )
    assert (reply.thinking, reply.text, reply.calls) == (thoughts, "No.", ())


@pytest.mark.parametrize(("most", "n_ctx"), [(400, 4000), (None, 700)])
def test_a_required_call_comes_even_if_thoughts_never_end(most: int | None, n_ctx: int) -> None:
    question = tool_question(NOW, policy=CallPolicy(choice="required", parallel=False))
    speaker = assistant("<think>" + "hm " * 900, template=XML + THINKS, n_ctx=n_ctx)
    reply, _ = answered(speaker, question, limited(most))
    assert [each.name for each in reply.calls] == ["now"]
    assert reply.thinking.startswith("hm hm")
    assert reply.stop_reason is StopReason.TOOL_CALL


@examples(25)
@given(st.sampled_from([HERMES, *BARE]), st.data())
def test_calls_in_thoughts_are_found_wherever_they_are_cut(
    source: str, data: st.DataObject
) -> None:
    form = form_of(source)
    names = ("area", "now")
    call = call_of_area(source)
    parts = [form.trigger, form.begin, form.then, form.end, call, f"\n{call}"]
    parts += ["area", "now", "volume", "</think>", "x\n"]
    text = "".join(data.draw(st.lists(st.sampled_from(parts), max_size=8)))

    def split(chunks: Iterable[str]) -> tuple[str, str]:
        tags = ThinkingTags("<think>", "</think>")
        thinking = ThinkingFilter((tags,), tags, CallsInThoughts(form, names))
        spans = [each for chunk in chunks for each in thinking.feed(chunk)]
        spans += thinking.feed("", final=True)
        return tuple("".join(e.text for e in spans if e.thinking is way) for way in (True, False))  # type: ignore[return-value]

    assert split(cut(data, text)) == split([text])


@examples(12)
@given(
    st.integers(0, 99), st.sampled_from([0.0, 0.9, 2.0]), st.sampled_from([*BARE]), st.booleans()
)
def test_drafting_changes_no_such_call(
    seed: int, temperature: float, source: str, thinks: bool
) -> None:
    script = f"{'<think>' * thinks}Well.\n{BARE[source][0]}"
    sampling = SamplingParams(temperature=temperature, top_k=0, top_p=1, min_p=0)
    replies = []
    for drafter in (None, ForcedDrafter(), LookupDrafter({CONTROL_END})):
        reply, _ = answered(
            assistant(script, drafter, template=source + THINKS * thinks),
            tool_question(),
            ReplyOptions(sampling, seed, 150),
        )
        replies.append((reply.tokens, reply.calls, reply.text, reply.thinking, reply.stop_reason))
    assert replies[1:] == replies[:1] * 2


VOCABULARY = ByteVocabulary(
    *("=area", "area", 'area"', ">\n", "</", "now\n", "\narea", "\n\n"),
    *('="area', "function", ".area:", "n", "a", "ar"),
)
PIECES = VOCABULARY.pieces()
LONGER = Grammars(VOCABULARY)


def walked(rule: Any, words: Iterable[str], random: Random) -> tuple[Any, str]:
    """Return where words lead that are spelled by chance, as far as the rule lets them, and their text."""
    state, text, tokens = rule.start(), b"", np.arange(len(PIECES))
    for word in words:
        rest = word.encode()
        while rest:
            fits = [each for each in tokens if PIECES[each] and rest.startswith(PIECES[each])]
            fits = [each for each in fits if rule.allows(state, np.array([each]))[0]]
            if not fits:
                return state, text.decode()
            token = int(random.choice(fits))
            state, text = rule.step(state, token), text + PIECES[token]
            rest = rest[len(PIECES[token]) :]
    return state, text.decode()


@examples(200)
@given(st.sampled_from([HERMES, *BARE]), st.booleans(), st.integers(0, 10**6))
def test_what_is_read_as_a_call_was_bound(source: str, thoughts: bool, seed: int) -> None:
    form, random, offer = form_of(source), Random(seed), CallPolicy().offer(["area", "now"], [])
    find = LONGER.in_thoughts if thoughts else LONGER.of_answers
    rule = find(OfferedCalls(form, (AREA, NOW), offer))
    call = call_of_area(source)
    wanted = [form.begin, form.trigger, *[call] * 4, call[: call.index("area")]]
    wanted += ["area", "now", "\n", "x", "</"]
    state, text = walked(rule, random.choices(wanted, k=random.randrange(1, 6)), random)
    if thoughts:
        _, is_call = CallsInThoughts(form, offer.names).find(text, at_line=True, final=True)
        bound = state.bound is not None
    else:
        parser = CallParser(form, (AREA, NOW), lambda: "1")
        events = [*parser.feed(text), *parser.flush()]
        is_call = any(isinstance(each, CallBegun) for each in events)
        bound = state.bound is not None or (state.watched and state.watched.bound is not None)
    assert bound or not is_call, text


@pytest.mark.parametrize("source", BARE)
def test_a_call_behind_a_line_that_might_have_begun_another_is_bound(source: str) -> None:
    offer = CallPolicy().offer(["area", "now"], [])
    rule = LONGER.of_answers(OfferedCalls(form_of(source), (AREA, NOW), offer))
    for seed in range(20):
        state, text = walked(rule, ["now\n", call_of_area(source)], Random(seed))
        assert state.bound is not None or state.watched.bound is not None, text


@pytest.mark.parametrize(("source", "head"), [(XML, "<function=area>\n</function"), (MINIMAX, '<invoke name="area">\n</invoke')])  # fmt: skip
def test_a_head_that_the_rule_does_not_have_cannot_be_completed(source: str, head: str) -> None:
    rule = LONGER.of_answers(
        OfferedCalls(form_of(source), (AREA, NOW), CallPolicy().offer(["area", "now"], []))
    )
    state, text = walked(rule, [head], Random(1))
    ends = np.array([ord(">"), ord("x"), PIECES.index(b">\n")])
    assert text == head
    assert rule.allows(state, ends).tolist() == [False, True, False], "`of` is required"
    state, _ = walked(rule, [head.replace("area", "now")], Random(1))
    assert rule.allows(state, ends).tolist() == [True, True, True]


def test_a_name_may_begin_in_the_token_that_ends_its_opening() -> None:
    rule = LONGER.of_answers(
        OfferedCalls(form_of(XML), (AREA, NOW), CallPolicy().offer(["area", "now"], []))
    )
    state, _ = walked(rule, ["So: <function"], Random(1))
    ids = np.array([PIECES.index(each) for each in (b"=area", b"=", b"ar", b"</")])
    assert rule.allows(state, ids).all(), "many vocabularies have a token such as this"
    begun = rule.step(state, PIECES.index(b"=area"))
    ends = [PIECES.index(each) for each in (b">\n", b">", b"x")]
    assert rule.allows(begun, np.array(ends)).all(), "it may still be words"
    words = rule.step(begun, PIECES.index(b"x"))
    assert rule.allows(words, np.arange(256)).all()
    called = rule.step(begun, PIECES.index(b">\n"))
    head = b"<parameter=of"
    for byte in head:
        assert rule.allows(called, np.array([byte])).all()
        called = rule.step(called, byte)
    assert rule.allows(called, np.array(ends)).tolist()[0]
    assert not rule.allows(called, np.array([ord("x")])).any(), "its head is whole"
    state, _ = walked(rule, ["So: <function=", "volume>\n"], Random(1))
    assert rule.allows(state, np.arange(256)).all()


@pytest.mark.parametrize(
    ("script", "most", "words"),
    [
        ("<think>hm", None, "only thoughts and no answer: leave"),
        ("<think>hm hm hm", 8, "only thoughts and no answer: allow more tokens"),
        ("<think>hm</think>\n\n", None, "only thoughts"),
        ("<think>hm</think>\n\nYes.", None, ""),
        (f"<think>hm</think>{hermes('now')}", None, ""),
        ("Yes.", None, ""),
        ("", None, ""),
    ],
)
def test_a_reply_of_thoughts_alone_says_so(script: str, most: int | None, words: str) -> None:
    speaker = assistant(script, template=HERMES + THINKS, n_ctx=700)  # which the first one fills
    reply, _ = answered(speaker, tool_question(), limited(most))
    assert bool(reply.note) == bool(words)
    assert words in reply.note
    assert reply.only_thoughts == bool(words)
