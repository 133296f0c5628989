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
from localspec.calls.policy import CallPolicy, OfferedCalls
from localspec.chat.call_finder import call_format
from localspec.chat.call_parser import CallParser, _Nesting
from localspec.chat.calling import words_end, written_calls
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
    *('<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>"),
    *('}\n</tool_call>\n<tool_call>\n{"name": "', "<tool_call>"),
)
BOTH = ValueForm(">\n", "\n</parameter>\n<")
XML_FORM = CallFormat(
    *("<tool_call>\n<function=", ">\n<parameter=", "/function>\n</tool_call>"),
    *("/function>\n</tool_call>\n<tool_call>\n<function=", "<tool_call>"),
    TaggedArguments(">\n<parameter=", BOTH, BOTH, "parameter=", ">\n<"),
)
GEMMA_FORM = CallFormat(
    *("<|tool_call>call:", "{", "}<tool_call|>", "}<tool_call|><|tool_call>call:", "<|tool_call>"),
    TaggedArguments("{", ValueForm(':<|"|>', '<|"|>'), ValueForm(":", ""), ",", "{"),
)
FORMS = [HERMES_FORM, XML_FORM, GEMMA_FORM]
HARMONY_FORM = CallFormat(
    *(" to=functions.", "<|channel|>commentary json<|message|>", "<|call|>", None),
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


def template(source: str) -> ChatTemplate:
    return ChatTemplate(source, "", "<|im_end|>")


TOJSON = "{{ call.function.arguments | tojson }}"
PAIRS = "{% for key, value in call.function.arguments.items() %}<{{ key }}={{ value }}>{% endfor %}"
NAMING = (
    "{% for key, value in call.function.arguments.items() %}{{ key }}={{ value }}>"
    "{% if not loop.last %};{{ key }};<{% endif %}{% endfor %}"
)


def test_a_format_is_what_stands_around_a_call_and_arguments_are_json() -> None:
    assert call_format(template(HERMES)) == HERMES_FORM
    without = "{% for message in messages %}{{ message.content }}\n{% endfor %}"
    assert call_format(template(without)) is None
    # One that changes its mind has none.
    one = "call.function.arguments.key_one is string"
    both = f"{{% if {one} %}}{PAIRS}{{% else %}}{TOJSON}{{% endif %}}"
    assert call_format(template(HERMES.replace(TOJSON, both))) is None
    as_text = HERMES.replace("call.function.arguments | tojson", "'' + call.function.arguments")
    for source in (HERMES, as_text):
        assert '"arguments": {"city": "7"}}' in rendered(template(source), CALLS[2:])
    turns = [Message.user("?"), Message("assistant", tool_calls(CALLS[:1]))]
    turns.append(Message("tool", (ToolResult("callOne00", "It rains."),)))
    assert "<|im_start|>tool\nIt rains.<|im_end|>" in template(HERMES).render(turns)


def test_a_separator_of_arguments_may_name_the_one_before_it() -> None:
    chat = template(HERMES.replace(f'", "arguments": {TOJSON}}}', f'": <{NAMING}'))
    form = call_format(chat)
    assert form is not None
    assert form.tagged is not None
    assert form.tagged.next == f";{NAME_SLOT};<"
    calls = [("get_weather", {"city": "Rio", "days": 3}), *CALLS[2:]]
    text = rendered(chat, calls)
    assert parsed(form, text) == parsed(form, [text])
    assert parsed(form, text)[0] == calls
    offer = CallPolicy(choice="required").offer(["get_weather"], [])
    grammar = GRAMMARS.of_calls(OfferedCalls(form, TOOLS[:1], offer))
    state = grammar.start()
    for token in spelled(text[text.index("<tool_call>") : text.index("</tool_call>")]):
        assert grammar.allows(state, np.array([token]))[0]
        state = grammar.step(state, token)


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
            assert parsed(form, text) == parsed(form, [text[:40], text[40:]]) == whole, name
        assert name != "openai-gpt-oss-120b" or form == HARMONY_FORM
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
        assert not calls
        left_over = text[len(rest) :].strip()  # closing markers of no call, at the end
        assert text.startswith(rest)
        assert not left_over or (left_over in form.end * 12 and form.trigger not in text)


def test_what_was_not_offered_or_bound_is_text_and_white_space_is_up_to_the_model() -> None:
    text = written([ToolCall("", "rm", "{}")], HERMES_FORM)
    assert parsed(HERMES_FORM, text) == ([], text)
    text = '<tool_call>{"name":"now","arguments":{}}</tool_call>'
    assert parsed(HERMES_FORM, text) == ([("now", {})], "")
    # A grammar binds what follows the trigger alone: what the parser reads beside it nothing would have bound.
    form = CallFormat('{"name": "', '", "arguments": ', "}", None, '{"name": "')
    loose = '{ "name": "now", "arguments": {}}'
    assert parsed(form, loose.replace("{ ", "{")) == ([("now", {})], "")
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
def test_gpt_oss_calls_from_among_its_thoughts(text: str, thoughts: str, words: str) -> None:
    tags = tuple(each for each in KNOWN_TAGS if "channel|>" in each.open and "<|c" in each.open)
    for chunks in (text, *([text[:at], text[at:]] for at in range(len(text)))):
        thinking = ThinkingFilter(tags)
        spans = [span for chunk in chunks for span in thinking.feed(chunk)]
        spans += thinking.feed("", final=True)
        calls, rest = parsed(HARMONY_FORM, [span.text for span in spans if not span.thinking])
        assert (calls, rest.strip()) == ([("get_weather", {"city": "Rio"})], words)
        assert "".join(span.text for span in spans if span.thinking) == thoughts


def test_arguments_arrive_before_they_end_and_a_call_that_breaks_off_is_not_done() -> None:
    parser = CallParser(XML_FORM, TOOLS, lambda: "1")
    parser.feed("<tool_call>\n<function=get_weather>\n<parameter=city>\n")
    assert parser.feed('Rio "de') == [CallDelta("1", 'Rio \\"de')]
    parser = CallParser(HERMES_FORM, TOOLS, lambda: "1")
    events = parser.feed('<tool_call>\n{"name": "now", "arguments": {"a": ') + parser.flush()
    assert events == [CallBegun("1", "now"), CallDelta("1", '{"a": ')]


BARE = ValueForm("=", ")")
NAMING_FORM = CallFormat("<call><", ">", f"</{NAME_SLOT}></call>", f"</{NAME_SLOT}><", "<call>")
ENDLESS_FORM = CallFormat("<call>", "(", "", None, "<call>", TaggedArguments("(", BARE, BARE, ",", "()"))  # fmt: skip
LOOSE = ValueForm("=", "")
PYTHON_FORM = CallFormat(
    *("<|tool_call_start|>[", "(", ")]<|tool_call_end|>", "), ", "<|tool_call_start|>"),
    TaggedArguments("(", LOOSE, LOOSE, ", ", "(", quoted=True),
)


def test_ends_that_name_the_function_or_are_empty_and_values_within_quotes_are_read() -> None:
    named = '<call><get_weather>{"city": "7"}</get_weather><now>{}</now></call>'
    assert parsed(NAMING_FORM, named) == ([("get_weather", {"city": "7"}), ("now", {})], "")
    assert parsed(ENDLESS_FORM, "<call>now()") == ([("now", {})], "")
    values: list[tuple[str, Any]] = [
        ("1), unknown(b=2", "1), unknown(b=2"),
        ("']), (', days=1", "]), ("),
        ('[{\'a\': (1, 2)}, "\\"]"]', [{"a": [1, 2]}, '"]']),
    ]
    for value, read in values:  # which end outside their quotes and brackets
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


# Calls written as JSON in an answer's words: what is one, and what stays words.


PATH, LINE = {"path": {"type": "string"}}, {"first_line": {"type": "integer"}}
READ = Tool("read_file", {"type": "object", "properties": PATH | LINE, "required": ["path"]})
LIST = Tool("list_folder", {"type": "object", "properties": PATH})
WRITTEN = '{"name": "read_file", "arguments": {"path": "notes.txt", "first_line": 1}}'
LISTING = '{"name": "list_folder"}'


def block(*calls: str) -> str:
    return "\n".join(f"```json\n{each}\n```" for each in calls)


def parsed_words(
    answer: str, policy: CallPolicy | None = None
) -> list[tuple[str, dict[str, object]]]:
    numbers = (f"id{number}" for number in count())
    offer = (policy or CallPolicy()).offer([READ.name, LIST.name], [])
    events = list(written_calls(answer, [READ, LIST], offer, lambda: next(numbers)))
    calls = [each.call for each in events if isinstance(each, CallDone)]
    assert events == [
        event
        for call in calls
        for event in (
            CallBegun(call.id, call.name), CallDelta(call.id, call.arguments), CallDone(call),
        )
    ]  # fmt: skip
    return [(call.name, json.loads(call.arguments)) for call in calls]


@pytest.mark.parametrize("needed", [None, [], ["path"], True, ["path", 5]])
def test_a_tool_may_have_no_list_of_what_it_requires(needed: Any) -> None:
    tool = Tool("read_file", {"type": "object", "properties": PATH, "required": needed})
    answer, offer = '{"name": "read_file", "arguments": {"path": "a"}}', CallPolicy().offer(["read_file"], [])  # fmt: skip
    events = list(written_calls(answer, [tool], offer, lambda: "id1"))
    assert [each.call.name for each in events if isinstance(each, CallDone)] == ["read_file"]


@pytest.mark.parametrize(
    "answer",
    [
        WRITTEN,
        block(WRITTEN),
        f"I will read it.\n```\n{WRITTEN}\n```\n",
        block(json.dumps(json.loads(WRITTEN), indent=2)),
        block(WRITTEN.replace("arguments", "parameters")),
    ],
)
def test_an_object_with_name_and_arguments_at_the_end_is_a_call(answer: str) -> None:
    assert parsed_words(answer) == [("read_file", {"path": "notes.txt", "first_line": 1})]


def test_several_blocks_are_calls_in_order_up_to_where_the_policy_ends_them() -> None:
    calls = parsed_words(f"Both:\n{block(WRITTEN, WRITTEN.replace('notes', 'other'))}")
    assert [arguments["path"] for _, arguments in calls] == ["notes.txt", "other.txt"]
    assert parsed_words(block(LISTING)) == [("list_folder", {})], "where no argument is needed"
    answer = block(LISTING, WRITTEN, WRITTEN)
    once = CallPolicy(at_most=(("read_file", 1),))
    assert [name for name, _ in parsed_words(answer)] == ["list_folder", "read_file", "read_file"]
    assert [name for name, _ in parsed_words(answer, once)] == ["list_folder", "read_file"]
    assert parsed_words(answer, CallPolicy(at_most=(("list_folder", 0),))) == []


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "Hello.",
        f"Call it like this: {WRITTEN}",
        f"{block(WRITTEN)}\nThat is how it is called.",
        block(WRITTEN.replace("read_file", "delete_all")),
        block(WRITTEN.replace("path", "file")),
        block('{"name": "read_file"}'),
        WRITTEN.replace('"first_line": 1', '"mode": "w"'),
        WRITTEN.replace('"arguments": ', '"why": "x", "arguments": '),
        '{"name": "read_file", "arguments": {"first_line": 1}}',
        '{"name": "read_file", "arguments": "notes.txt"}',
        block(WRITTEN[:-1]),
        "```",
        "[" * 5000,
        '{"a":' * 5000,
    ],
)
def test_anything_else_is_words(answer: str) -> None:
    assert parsed_words(answer) == []


@pytest.mark.parametrize(
    ("words", "calls"),
    [
        ("", WRITTEN),
        ("I will read it.\n", block(WRITTEN) + "\n"),
        ("Both: ", f"```\n {WRITTEN}\n```\n\n{block(WRITTEN)}"),
        (f"{block(WRITTEN)} no: ", block(WRITTEN)),
        ("```python\nx = {}\n```\n", block(WRITTEN)),
        ('```json\n{"area": 3}\n``` and `x`.', ""),
        ('{"area": {"name": 3}}', ""),
        ("a ```\nb", ""),
    ],
)
def test_what_may_be_calls_is_held_back_and_no_word_is(words: str, calls: str) -> None:
    answer = words + calls
    assert words_end(answer) == len(words)
    ends = [words_end(answer[:at]) for at in range(len(answer) + 1)]
    assert max(ends) == len(words)
    if "`" not in words and not words.startswith("{"):
        assert ends[: len(words) + 1] == list(range(len(words) + 1))
