"""Grammars of calls over bytes: what they let through is a valid call of a function that is offered."""

import json
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pytest

from localspec.calls import CallFormat, Tool
from localspec.calls.policy import CallOffer, CallPolicy, OfferedCalls
from localspec.errors import UsageError
from localspec.grammar import Grammars
from localspec.grammar.automaton import GrammarAutomaton
from tests.chat.test_calls import FORMS, GEMMA_FORM, HARMONY_FORM, HERMES_FORM, TOOLS, XML_FORM
from tests.grammar.answers import END, ByteVocabulary, passes

GRAMMARS = Grammars(ByteVocabulary())


def rule(
    form: CallFormat, *tools: Tool, begun: bool = False, several: bool = True
) -> GrammarAutomaton:
    offered = tools or tuple(TOOLS)
    return GRAMMARS.of_calls(
        OfferedCalls(form, offered, offer(offered, several=several)), begun=begun
    )


def offer(tools: Sequence[Tool], *, several: bool = True) -> CallOffer:
    return CallPolicy(parallel=several).offer([each.name for each in tools], [])


def tool(**schema: Any) -> Tool:
    return Tool("f", {"type": "object", **schema})


def hermes(name: str, arguments: Any) -> str:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return f'<tool_call>\n{{"name": "{name}", "arguments": {text}}}\n</tool_call>'


def test_a_call_may_have_another_text_before_its_arguments() -> None:
    calls, begun = rule(HARMONY_FORM), rule(HARMONY_FORM, begun=True)
    for then in (HARMONY_FORM.then, *HARMONY_FORM.also):
        for before in (" ", ""):
            assert passes(calls, f"{before}to=functions.now{then}{{}}<|call|>")
        assert passes(begun, f"now{then}{{}}<|call|>")
        assert not passes(begun, f"now{then}[]<|call|>")
    assert not passes(begun, " now{}<|call|>")


def test_valid_calls_pass_and_others_do_not() -> None:
    calls = rule(HERMES_FORM)
    assert passes(calls, hermes("get_weather", {"city": "Rio", "days": 3}))
    assert passes(calls, f"{hermes('now', {})}\n{hermes('get_weather', {'city': ''})}")
    for wrong in (
        hermes("rm", {}), hermes("now", {"a": 1}), hermes("get_weather", {}), hermes("get_weather", {"city": 7}),
        hermes("get_weather", '{"city": "Rio"'), hermes("now", {}) + " and so on", "No.",
    ):  # fmt: skip
        assert not passes(calls, wrong), wrong


def test_one_call_alone_and_the_rest_of_one_behind_its_trigger() -> None:
    one = rule(HERMES_FORM, several=False)
    assert passes(one, hermes("now", {}))
    assert not passes(one, f"{hermes('now', {})}\n{hermes('now', {})}")
    assert passes(rule(HERMES_FORM, begun=True), hermes("now", {}).removeprefix("<tool_call>"))


def test_an_answer_is_free_up_to_its_trigger_and_forced_behind_it() -> None:
    now = TOOLS[1:2]
    free = GRAMMARS.of_answers(OfferedCalls(HERMES_FORM, now, offer(now)))
    state = free.start()
    assert free.forced(state) == ()
    for byte in b"Yes. <tool_call>":
        assert free.allows(state, np.array([byte]))[0]
        state = free.step(state, byte)
    assert free.allows(state, np.array([ord("\n"), ord("x")])).tolist() == [True, False]
    assert b'{"name": "now"' in bytes(free.forced(state))


def test_arguments_that_stand_alone_are_bound_to_their_schemas() -> None:
    calls, begin, end = rule(XML_FORM), "<tool_call>\n<function=", "</function>\n</tool_call>"
    values = {"city": 'a "<b>"\n</param', "days": 3}
    city, days = (f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    assert passes(calls, f"{begin}get_weather>\n{city}{days}{end}")
    assert passes(calls, f"{begin}now>\n{end}")
    no_days = days.replace("3", "three")
    for wrong in (f"get_weather>\n{days}", f"get_weather>\n{city}{city}", f"get_weather>\n{city}{no_days}", "get_weather>\n", f"now>\n{city}"):  # fmt: skip
        assert not passes(calls, f"{begin}{wrong}{end}"), wrong


def test_texts_without_quotes_keep_their_schemas() -> None:
    text = "<tool_call>\n<function=f>\n<parameter=a>\n{}\n</parameter>\n</function>\n</tool_call>"
    for more, right, wrong in (({"enum": ["C", "F"]}, "C", "K"), ({"pattern": "^[a-z]+$"}, "abc", "a1"), ({"maxLength": 2}, "ab", "abc")):  # fmt: skip
        calls = rule(XML_FORM, tool(properties={"a": {"type": "string", **more}}, required=["a"]))
        assert passes(calls, text.format(right))
        assert not passes(calls, text.format(wrong))
    calls = rule(GEMMA_FORM)
    assert passes(calls, '<|tool_call>call:get_weather{city:<|"|>a, b<|"|>,days:3}<tool_call|>')
    assert not passes(calls, "<|tool_call>call:get_weather{city:3}<tool_call|>")


@pytest.mark.parametrize("form", FORMS)
def test_random_walks_end_in_calls_that_are_read_back(form: CallFormat) -> None:
    from tests.chat.test_calls import parsed  # noqa: PLC0415

    small = {"city": {"type": "string", "maxLength": 4}, "days": {"type": "integer"}}
    offered = [Tool("get_weather", {"type": "object", "properties": small, "required": ["city"], "additionalProperties": False}), TOOLS[1]]  # fmt: skip
    calls = rule(form, *offered, several=False)
    everything = np.arange(END + 1)
    for seed in range(4):
        random, state, written = Random(seed), calls.start(), list[int]()
        while True:
            token = random.choice(everything[calls.allows(state, everything)].tolist())
            if token == END:
                break
            written.append(token)
            state = calls.step(state, token)
            # Digits may go on for ever.
            assert len(written) < 2000
        found, rest = parsed(form, [bytes(written).decode()])
        assert rest == ""
        assert len(found) == 1
        name, arguments = found[0]
        assert set(arguments) <= set(small if name == "get_weather" else ())


def test_control_tokens_stand_for_their_texts() -> None:
    form = CallFormat('[CALL]{"name": "', '", "arguments": ', "}[END]", None, "[CALL]")
    vocabulary = ByteVocabulary(more_eog=1)
    vocabulary.longer = {b"\xff\xfe": END + 2}
    control = {"[CALL]": END + 2, "[END]": END + 1}
    calls = Grammars(vocabulary).of_calls(OfferedCalls(form, TOOLS, offer(TOOLS), control))
    state = calls.start()
    for token in [END + 2, *b'{"name": "now", "arguments": {}}', END + 1]:
        assert calls.allows(state, np.array([token]))[0]
        state = calls.step(state, token)


def test_a_schema_that_cannot_be_kept_is_refused_with_its_place_where_that_is_asked() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "format": "date"}}}
    with pytest.raises(UsageError, match="format"):
        rule(XML_FORM, Tool("f", schema, strict=True))
    text = "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>"
    assert passes(rule(XML_FORM, Tool("f", schema)), text)
    odd = {**schema, "properties": {"a": {"not": {"type": "null"}}}, "required": ["a"]}
    calls = rule(HERMES_FORM, Tool("f", odd))
    assert passes(calls, hermes("f", {"a": 1}))
    assert not passes(calls, hermes("f", {})), "what is required still is"
    assert not passes(calls, hermes("f", {"a": 1, "b": 2}))
    with pytest.raises(UsageError, match="among its properties"):
        rule(XML_FORM, Tool("f", {"properties": {}, "required": ["a"]}, strict=True))
