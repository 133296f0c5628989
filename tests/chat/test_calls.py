"""Formats of calls in templates of llama.cpp's and in small ones, and calls read back as they were written."""

import json
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.calls import NAME_SLOT, CallFormat, TaggedArguments, Tool, ValueForm
from localspec.calls.policy import CallPolicy
from localspec.chat.call_finder import call_format
from localspec.chat.call_parser import CallParser, _Nesting
from localspec.chat.events import CallBegun, CallDelta, CallDone, Text
from localspec.chat.known_calls import written
from localspec.chat.reply_text import ThinkingFilter
from localspec.chat.template import ChatTemplate
from localspec.chat.thinking import KNOWN_TAGS
from localspec.errors import TemplateError
from localspec.messages import Message, ToolCall, ToolResult
from tests.chat.cutting import cut
from tests.chat.toy_calls import GRAMMARS, HERMES
from tests.chat.toy_tokenizer import spelled
from tests.vocabularies import real_templates

HERMES_FORM = CallFormat(
    '<tool_call>\n{"name": "',
    '", "arguments": ',
    "}\n</tool_call>",
    '}\n</tool_call>\n<tool_call>\n{"name": "',
    "<tool_call>",
)
BOTH = ValueForm(">\n", "\n</parameter>\n<")
XML_FORM = CallFormat(
    "<tool_call>\n<function=",
    ">\n<parameter=",
    "/function>\n</tool_call>",
    "/function>\n</tool_call>\n<tool_call>\n<function=",
    "<tool_call>",
    TaggedArguments(">\n<parameter=", BOTH, BOTH, "parameter=", ">\n<"),
)
GEMMA_FORM = CallFormat(
    "<|tool_call>call:",
    "{",
    "}<tool_call|>",
    "}<tool_call|><|tool_call>call:",
    "<|tool_call>",
    TaggedArguments("{", ValueForm(':<|"|>', '<|"|>'), ValueForm(":", ""), ",", "{"),
)
FORMS = [HERMES_FORM, XML_FORM, GEMMA_FORM]
HARMONY_FORM = CallFormat(
    " to=functions.",
    "<|channel|>commentary json<|message|>",
    "<|call|>",
    None,
    "to=functions.",
    also=(" <|constrain|>json<|message|>",),
)

TYPES = {"city": "string", "days": "integer", "detail": "object", "exact": "boolean"}
PROPERTIES: dict[str, dict[str, Any]] = {
    name: {"type": type_, "description": "What it says."} for name, type_ in TYPES.items()
}
# Command R+ asks what an object holds.
PROPERTIES["detail"]["additionalProperties"] = {"type": "array"}
TOOLS = [
    Tool("get_weather", {"type": "object", "properties": PROPERTIES, "required": ["city"]}, "A."),
    Tool("now", {"type": "object", "properties": {}, "required": []}, "The time."),
]
ALL = {
    "city": 'São "Paulo"\n<b>, x}',
    "days": 3,
    "detail": {"a": [1, 2.5, None], "b": "x, y}"},
    "exact": True,
}
CALLS = [("get_weather", ALL), ("now", {}), ("get_weather", {"city": "7"})]
# Templates whose format is not found, or not read back whole, and why: see decision 0101.
FAILING = {
    "HuggingFaceTB-SmolLM3-3B": "knows no tools at all",
    "Kimi-K2-Instruct": "calls append, which the sandbox does not allow, as in Hugging Face's",
    "Kimi-K2-Thinking": "calls append",
    "MiniMax-M3": "writes values that have parts as tags of tags",
    "google-gemma-2-2b-it": "knows no tools",
    "llama-cpp-rwkv-world": "knows no tools",
    "meetkai-functionary-medium-v3.2": "begins a call in its prompt",
    "microsoft-Phi-3.5-mini-instruct": "knows no tools",
    "openbmb-MiniCPM5-1B": "writes some texts as CDATA",
}


def parsed(form: CallFormat, chunks: Iterable[str]) -> tuple[list[tuple[str, Any]], str]:
    """Return calls and text; the pieces of each call have to add up to it."""
    ids = count()
    parser = CallParser(form, TOOLS, lambda: f"call{next(ids):05}")
    events = [each for chunk in chunks for each in parser.feed(chunk)] + parser.flush()
    pieces: dict[str, str] = {}
    for each in events:
        if isinstance(each, CallBegun):
            pieces[each.id] = ""
        elif isinstance(each, CallDelta):
            pieces[each.id] += each.text
    calls = [each.call for each in events if isinstance(each, CallDone)]
    assert all(pieces[each.id] == each.arguments for each in calls)
    text = "".join(each.text for each in events if isinstance(each, Text))
    return [(each.name, json.loads(each.arguments)) for each in calls], text


def tool_calls(calls: Sequence[tuple[str, Any]]) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(f"callOne0{number}", name, json.dumps(arguments, ensure_ascii=False))
        for number, (name, arguments) in enumerate(calls)
    )


def rendered(chat: ChatTemplate, calls: Sequence[tuple[str, Any]]) -> str:
    """Return the assistant's turn, without what it begins and ends with."""
    turns = [Message.user("QUESTION"), Message("assistant", tool_calls(calls))]
    text = chat.render(turns, tools=TOOLS, add_generation_prompt=False)
    return text[text.rindex("QUESTION") :]


TOJSON = "{{ call.function.arguments | tojson }}"
PAIRS = "{% for key, value in call.function.arguments.items() %}<{{ key }}={{ value }}>{% endfor %}"
NAMING = (
    "{% for key, value in call.function.arguments.items() %}{{ key }}={{ value }}>"
    "{% if not loop.last %};{{ key }};<{% endif %}{% endfor %}"
)


def template(source: str) -> ChatTemplate:
    return ChatTemplate(source, "", "<|im_end|>")


def test_a_format_is_what_stands_around_the_parts_of_a_call() -> None:
    assert call_format(template(HERMES)) == HERMES_FORM
    without = "{% for message in messages %}{{ message.content }}\n{% endfor %}"
    assert call_format(template(without)) is None
    # One that changes its mind has none.
    one = "call.function.arguments.key_one is string"
    both = f"{{% if {one} %}}{PAIRS}{{% else %}}{TOJSON}{{% endif %}}"
    assert TOJSON in HERMES
    assert call_format(template(HERMES.replace(TOJSON, both))) is None


def test_a_separator_of_arguments_may_name_the_one_before_it() -> None:
    source = HERMES.replace(f'", "arguments": {TOJSON}}}', f'": <{NAMING}')
    form = call_format(template(source))
    assert form is not None
    assert form.tagged is not None
    assert form.tagged.next == f";{NAME_SLOT};<"
    calls = [("get_weather", {"city": "Rio", "days": 3}), *CALLS[2:]]
    text = rendered(template(source), calls)
    assert parsed(form, text) == parsed(form, [text])
    assert parsed(form, text)[0] == calls
    offer = CallPolicy(choice="required").offer(["get_weather"], [])
    grammar = GRAMMARS.of_calls(form, TOOLS[:1], offer, {})
    state = grammar.start()
    for token in spelled(text[text.index("<tool_call>") : text.index("</tool_call>")]):
        assert grammar.allows(state, np.array([token]))[0]
        state = grammar.step(state, token)


def test_arguments_are_written_as_json_whether_a_template_adds_up_texts_or_not() -> None:
    as_text = HERMES.replace("call.function.arguments | tojson", "'' + call.function.arguments")
    for source in (HERMES, as_text):
        assert '"arguments": {"city": "7"}}' in rendered(template(source), CALLS[2:])
    turns = [Message.user("?"), Message("assistant", tool_calls(CALLS[:1]))]
    turns.append(Message("tool", (ToolResult("callOne00", "It rains."),)))
    assert "<|im_start|>tool\nIt rains.<|im_end|>" in template(HERMES).render(turns)


@pytest.mark.slow
def test_calls_that_templates_write_are_read_back_wherever_they_are_cut() -> None:
    failed = set()
    for name, path in real_templates().items():
        chat = ChatTemplate(path.read_text(), "<s>", "</s>")
        form = call_format(chat)
        if form is None:
            failed.add(name)
            continue
        wanted = [CALLS[:1], CALLS[1:2], CALLS[2:], CALLS]
        for calls in wanted if form.next is not None else wanted[:3]:
            try:
                text = rendered(chat, calls)
            except TemplateError:
                failed.add(name)
                continue
            whole = parsed(form, [text])
            if whole[0] != calls:
                failed.add(name)
            assert parsed(form, text) == whole, name
            assert parsed(form, [text[:40], text[40:]]) == whole, name
        if name == "openai-gpt-oss-120b":
            assert form == HARMONY_FORM
    assert failed == set(FAILING)


values = st.recursive(
    st.booleans() | st.integers(-(10**9), 10**9),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


@given(st.data())
def test_calls_among_text_are_read_back_wherever_they_are_cut(data: st.DataObject) -> None:
    form, words = data.draw(st.sampled_from(FORMS)), st.text("ab \n<{:", max_size=8)
    city = {"city": st.text('ab7"\\ \n<>/é{,', max_size=9)}
    weather = st.tuples(
        st.just("get_weather"), st.fixed_dictionaries(city, optional={"days": values})
    )
    calls: list[tuple[str, Any]] = data.draw(
        st.lists(weather | st.just(("now", {})), min_size=1, max_size=3)
    )
    before, after = data.draw(words), data.draw(words)
    text = f"{before}{written(tool_calls(calls), form)}{after}"
    assert parsed(form, cut(data, text)) == parsed(form, [text]) == (calls, before + after)


@given(st.sampled_from(FORMS), st.data())
def test_what_does_not_parse_is_text(form: CallFormat, data: st.DataObject) -> None:
    parts = [form.begin, "now", "get_weather", form.then, "{", "}", form.end, "x", '"', " "]
    text = "".join(data.draw(st.lists(st.sampled_from(parts), max_size=12)))
    calls, rest = parsed(form, [text])
    assert parsed(form, text) == (calls, rest)
    if not any(f"{form.begin}{each.name}" in text for each in TOOLS):
        assert (calls, rest) == ([], text)


def test_what_was_not_offered_or_bound_is_text_and_white_space_is_up_to_the_model() -> None:
    text = written([ToolCall("", "rm", "{}")], HERMES_FORM)
    assert parsed(HERMES_FORM, text) == ([], text)
    text = '<tool_call>{"name":"now","arguments":{}}</tool_call>'
    assert parsed(HERMES_FORM, text) == ([("now", {})], "")
    # A grammar binds what follows the trigger alone: what the parser reads beside it nothing would have bound.
    form = CallFormat('{"name": "', '", "arguments": ', "}", None, '{"name": "')
    bound, loose = '{"name": "now", "arguments": {}}', '{ "name": "now", "arguments": {}}'
    assert parsed(form, bound) == ([("now", {})], "")
    assert parsed(form, loose) == ([], loose)


ANALYSIS = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
CALL = '{"city": "Rio"}'
OURS = f"<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{CALL}"
TEMPLATE_S = f" to=functions.get_weather<|channel|>commentary json<|message|>{CALL}<|call|>"
PREAMBLE = "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant"


@pytest.mark.parametrize(
    ("text", "thoughts", "words"),
    [
        (OURS, "", ""),
        (TEMPLATE_S, "", ""),
        (ANALYSIS + OURS, "Hm.", ""),
        (ANALYSIS + TEMPLATE_S, "Hm.", ""),
        (ANALYSIS + PREAMBLE + OURS, "Hm.", "I look."),
        (PREAMBLE + ANALYSIS + OURS, "Hm.", "I look."),
    ],
)
def test_gpt_oss_calls_from_among_its_thoughts_wherever_they_are_cut(
    text: str, thoughts: str, words: str
) -> None:
    tags = tuple(each for each in KNOWN_TAGS if "channel|>" in each.open and "<|c" in each.open)
    for chunks in (text, *([text[:at], text[at:]] for at in range(len(text)))):
        thinking = ThinkingFilter(tags)
        spans = [span for chunk in chunks for span in thinking.feed(chunk)] + thinking.feed(
            "", final=True
        )
        calls, rest = parsed(HARMONY_FORM, [span.text for span in spans if not span.thinking])
        assert calls == [("get_weather", {"city": "Rio"})]
        assert rest.strip() == words
        assert "".join(span.text for span in spans if span.thinking) == thoughts


def test_arguments_arrive_before_they_end_and_a_call_that_breaks_off_is_not_done() -> None:
    parser = CallParser(XML_FORM, TOOLS, lambda: "1")
    parser.feed("<tool_call>\n<function=get_weather>\n<parameter=city>\n")
    assert parser.feed('Rio "de') == [CallDelta("1", 'Rio \\"de')]
    parser = CallParser(HERMES_FORM, TOOLS, lambda: "1")
    events = parser.feed('<tool_call>\n{"name": "now", "arguments": {"a": ') + parser.flush()
    assert events == [CallBegun("1", "now"), CallDelta("1", '{"a": ')]


BARE = ValueForm("=", ")")


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (
            CallFormat("<call><", ">", f"</{NAME_SLOT}></call>", f"</{NAME_SLOT}><", "<call>"),
            '<call><get_weather>{"city": "7"}</get_weather><now>{}</now></call>',
        ),
        (
            CallFormat(
                "<call>", "(", "", None, "<call>", TaggedArguments("(", BARE, BARE, ",", "()")
            ),
            "<call>now()",
        ),
    ],
)
def test_ends_that_name_the_function_or_are_empty_are_read(form: CallFormat, text: str) -> None:
    calls, words = parsed(form, text)
    assert calls[-1] == ("now", {})
    assert len(calls) == 1 + text.count("<get_weather>")
    assert words == ""


PYTHON_FORM = CallFormat(
    "<|tool_call_start|>[",
    "(",
    ")]<|tool_call_end|>",
    "), ",
    "<|tool_call_start|>",
    TaggedArguments("(", ValueForm("=", ""), ValueForm("=", ""), ", ", "(", quoted=True),
)


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("1), unknown(b=2", "1), unknown(b=2"),
        ("']), (', days=1", "]), ("),
        ('[{\'a\': (1, 2)}, "\\"]"]', [{"a": [1, 2]}, '"]']),
    ],
)
def test_a_value_ends_outside_its_quotes_and_brackets(value: str, read: Any) -> None:
    text = f"<|tool_call_start|>[now(), get_weather(city={value})]<|tool_call_end|>"
    calls, words = parsed(PYTHON_FORM, text)
    assert (calls[0], calls[1][1]["city"], words) == (("now", {}), read, "")
    assert parsed(PYTHON_FORM, [text])[0] == calls


def test_a_long_value_is_read_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    step = _Nesting.step

    def counted(nesting: _Nesting, text: str, at: int) -> int:
        sizes.append(step(nesting, text, at))
        return sizes[-1]

    monkeypatch.setattr(_Nesting, "step", counted)
    keys = ",".join(f'k{number}:<|"|>{{<|"|>' for number in range(100))
    text = f"<|tool_call>call:get_weather{{detail:{{{keys}}}}}<tool_call|>"
    calls, _ = parsed(GEMMA_FORM, text)
    assert calls == [("get_weather", {"detail": {f"k{number}": "{" for number in range(100)}})]
    assert sum(sizes) <= len(text)
