"""Requests: every form of a line becomes a prompt and options, or an error that says what is wrong."""

import json
from dataclasses import replace
from typing import Any

import pytest

from localspec.batch.line_template import LineTemplate
from localspec.batch.record import line_seed
from localspec.batch.request import Form, line_id, line_request, requested_model
from localspec.batch.source import Line
from localspec.chat.request import Request
from localspec.errors import LocalspecError, TemplateError, UsageError
from localspec.messages import Message
from localspec.options import FORBIDDEN, ReplyOptions, SamplingParams

USER = [{"role": "user", "content": "Hi"}]
SAID = {"role": "assistant", "content": "x"}


def line(**fields: Any) -> Line:
    return Line(3, "0" * 16, fields)


def asked(form: Form | None = None, **fields: Any) -> Request:
    return line_request(line(**fields), form or Form(ReplyOptions(seed=9)), 1)


def turns(ask: Request) -> list[tuple[str, str]]:
    assert ask.raw is None
    return [(each.role, each.text) for each in ask.messages]


def test_a_prompt_is_what_a_user_says_after_the_system_prompt_of_line_or_run() -> None:
    form = Form(ReplyOptions(), system="Be brief.")
    assert turns(asked(form, prompt="Hi")) == [("system", "Be brief."), ("user", "Hi")]
    own = asked(form, prompt="Hi", system="Be long.")
    assert turns(own) == [("system", "Be long."), ("user", "Hi")]


def test_messages_keep_their_own_system_prompt_and_may_end_with_the_assistant() -> None:
    form = Form(ReplyOptions(), system="Be brief.")
    messages = [{"role": "developer", "content": "Own."}, *USER]
    assert turns(asked(form, messages=messages)) == [("system", "Own."), ("user", "Hi")]
    begun = [*USER, {"role": "assistant", "content": "Well,"}]
    assert turns(asked(form, messages=begun))[-1] == ("assistant", "Well,")
    parts = [{"role": "user", "content": [{"type": "text", "text": "a"}] * 2}]
    assert turns(asked(messages=parts)) == [("user", "aa")]
    thought = [{"role": "assistant", "content": "Yes", "reasoning_content": "hm"}, *USER]
    assert asked(messages=thought).messages[0] == Message.assistant("Yes", "hm")


def test_raw_prompts_and_those_of_the_older_endpoint_go_as_they_are() -> None:
    body = {"model": "m", "prompt": "Once", "seed": 4}
    raw, old = (
        asked(Form(ReplyOptions(), raw=True), prompt="Once"),
        asked(url="/v1/completions", body=body),
    )
    assert (raw.messages, raw.raw) == (old.messages, old.raw) == ((), "Once")
    assert old.options.seed == 4


def test_options_of_a_line_are_laid_over_those_of_the_run() -> None:
    form = Form(ReplyOptions(SamplingParams(temperature=0.5, top_k=7), None, 10, ("x",)))
    ask = asked(form, prompt="Hi", temperature=0, max_tokens=3, stop="end", min_p=None)
    assert ask.options.sampling == SamplingParams(temperature=0, top_k=7)
    assert (ask.options.max_tokens, ask.options.stop) == (3, ("end",))
    assert ask.options.seed == line_seed(1, None, 3)
    assert asked(prompt="Hi", seed=0).options.seed == 0


@pytest.mark.parametrize(
    ("body", "think"),
    [
        ({}, None),
        ({"think": 64}, "64"),
        ({"reasoning_effort": "minimal"}, "low"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "off"),
        ({"reasoning_effort": "high", "think": "off"}, "off"),
        ({"reasoning_effort": 5}, "reasoning_effort is 5: it takes a text"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs is .*: it takes an object"),
        ({"chat_template_kwargs": {"x": 1}}, "chat_template_kwargs has 'x'"),
    ],
)
def test_a_body_says_how_to_think(body: dict[str, Any], think: str | None) -> None:
    given = {"messages": USER, **body}
    if think is None or " " not in think:
        assert asked(body=given).options.think == think
    else:
        with pytest.raises(LocalspecError, match=think):
            asked(body=given)


@pytest.mark.parametrize("value", ["sunflower", 7, [1], {"a": 1}])
def test_beside_a_template_fields_are_data_whatever_their_names(value: Any) -> None:
    form = Form(ReplyOptions(seed=9), LineTemplate("{{ seed }} {{ system }}", "t"), system="Brief.")
    fields = {"seed": value, "system": "solar", "temperature": "warm", "stop": 5, "grammar": []}
    ask = asked(form, **fields)
    assert turns(ask) == [("system", "Brief."), ("user", f"{value} solar")]
    assert ask.options == replace(form.options, seed=line_seed(1, None, 3))


def test_reply_options_are_laid_over_all_others_and_may_stand_beside_a_template() -> None:
    own = {"temperature": 0, "seed": 4, "system": "Own."}
    form = Form(ReplyOptions(max_tokens=10), LineTemplate("{{ seed }}", "t"), system="Run's.")
    for given in (own, json.dumps(own)):
        ask = asked(form, seed="flax", reply_options=given)
        assert turns(ask) == [("system", "Own."), ("user", "flax")]
        assert (ask.options.sampling.temperature, ask.options.seed) == (0, 4)
        assert ask.options.max_tokens == 10
    plain = asked(prompt="Hi", temperature=1, reply_options=own)
    assert plain.options.sampling.temperature == 0
    body = {"messages": USER, "temperature": 1}
    assert asked(body=body, reply_options=own).options.sampling.temperature == 0
    assert asked(prompt="Hi", reply_options="").options.max_tokens is None


def test_the_openai_form_is_read_with_its_options_and_the_name_of_its_model() -> None:
    body = {
        "model": "gpt-4o",
        "messages": USER,
        "temperature": 0.2,
        "max_completion_tokens": 4,
        "top_p": 0.5,
        "stop": ["a", "b"],
        "logit_bias": {"5": -100},
        "n": 1,
        "stream": False,
        "user": "u1",
        "response_format": {"type": "text"},
        "frequency_penalty": 1,
    }
    fields: dict[str, Any] = {"custom_id": "r-1", "url": "/v1/chat/completions", "body": body}
    ask = asked(method="POST", **fields)
    assert turns(ask) == [("user", "Hi")]
    assert requested_model(line(**fields), Form(ReplyOptions())) == "gpt-4o"
    assert requested_model(line(**fields), Form(ReplyOptions(), field="prompt")) is None
    assert ask.options.max_tokens == 4
    assert ask.options.stop == ("a", "b")
    assert ask.options.sampling == SamplingParams(
        temperature=0.2, top_p=0.5, frequency_penalty=1, logit_bias=((5, FORBIDDEN),)
    )
    assert ask.options.seed == line_seed(1, "r-1", 3)


def test_a_template_or_another_field_makes_the_prompt() -> None:
    template = LineTemplate("Who is {{ name }}{% for x in also %}, {{ x }}{% endfor %}?\n", "t")
    form = Form(ReplyOptions(), template=template)
    assert turns(asked(form, name="Ada", also=["Bob"])) == [("user", "Who is Ada, Bob?")]
    with pytest.raises(TemplateError, match="t fails on this line: 'name' is undefined"):
        asked(form, nom="Ada")
    form = Form(ReplyOptions(), field="question")
    assert turns(asked(form, question="Why?", prompt="no", messages="no")) == [("user", "Why?")]


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({}, "has no 'prompt', but nothing"),
        ({"text": "Hi"}, "has no 'prompt', but text: --field"),
        ({"prompt": 5}, "'prompt' is empty or not text"),
        ({"prompt": "  "}, "'prompt' is empty"),
        ({"prompt": "\ud800"}, "half of a character"),
        ({"prompt": "Hi", "messages": USER}, "cannot be combined"),
        ({"prompt": "Hi", "system": 1}, "system is not text"),
        ({"prompt": "Hi", "temperature": "warm"}, "temperature is 'warm': it takes a number"),
        ({"prompt": "Hi", "temperature": True}, "temperature is True"),
        ({"prompt": "Hi", "temperature": 10**400}, "temperature is 1000"),
        ({"prompt": "Hi", "temperature": float("nan")}, "temperature is nan"),
        ({"prompt": "Hi", "max_tokens": 1.5}, "max_tokens is 1.5: it takes a whole number"),
        ({"prompt": "Hi", "max_tokens": 0}, "max_tokens is 0: it must be 1 or more"),
        ({"prompt": "Hi", "stop": [1]}, "stop is"),
        ({"prompt": "Hi", "stop": ""}, "a stop string is"),
        ({"prompt": "Hi", "grammar": "root ::= ("}, "the grammar is wrong: Expected"),
        ({"prompt": "Hi", "regex": "(a"}, "unclosed group"),
        ({"prompt": "Hi", "lark": "start: b"}, "unknown name"),
        ({"prompt": "Hi", "json_schema": {"not": {}}}, "'not' is not supported"),
        ({"prompt": "Hi", "grammar": "x", "json_schema": {}}, "cannot be combined"),
        ({"prompt": "Hi", "grammar": 1}, "grammar is 1"),
        ({"prompt": "Hi", "regex": ["a"]}, "it takes a text"),
        ({"prompt": "Hi", "json_schema": [1]}, "it takes an object"),
        ({"prompt": "Hi", "response_format": "json"}, "response_format is 'json'"),
        ({"prompt": "Hi", "response_format": {"type": "json_schema"}}, "response_format is"),
        ({"prompt": "Hi", "logit_bias": {"a": 1}}, "logit_bias is"),
        ({"prompt": "Hi", "reply_options": [1]}, "reply_options is [1]: it takes an object"),
        ({"prompt": "Hi", "reply_options": "{"}, "it takes a JSON object"),
        ({"prompt": "Hi", "reply_options": {"prompt": 1}}, "reply_options has 'prompt': choose"),
        ({"prompt": "Hi", "reply_options": {"top_k": "a"}}, "top_k is 'a'"),
        ({"prompt": "Hi", "id": [1]}, "id is neither"),
        ({"prompt": "Hi", "id": "x" * 513}, "id is neither"),
        ({"prompt": "Hi", "id": 1 << 64}, "id is neither"),
        ({"messages": []}, "messages is empty"),
        ({"messages": {"role": "user"}}, "messages is empty, or not a list"),
        ({"messages": ["Hi"]}, "message 1 is not an object"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "message 1 has the role 'tool'"),
        ({"messages": [{"role": ["user"], "content": "x"}]}, "message 1 has the role \"['user']"),
        ({"messages": [{**SAID, "tool_calls": [{"id": "1"}]}]}, "message 1 calls tools"),
        ({"messages": [{"role": "system", "content": "x"}]}, "nothing to answer"),
        ({"messages": [*USER, {"role": "user"}]}, "content of message 2 is empty"),
        ({"messages": [{**SAID, "content": [{"type": "image_url"}]}]}, "only text is supported"),
        ({"body": "x"}, "body is not an object"),
        ({"body": {"model": "m"}}, "body.prompt is empty"),
        ({"body": {"messages": USER, "n": 2}}, "body.n is 2: only 1 is supported"),
        ({"body": {"messages": USER, "echo": True}}, "body.echo is"),
        ({"body": {"messages": USER, "tools": [{}]}}, "body.tools is"),
        ({"body": {"messages": USER, "tempratur": 1}}, "body.tempratur is not supported"),
        ({"body": {"messages": USER}, "url": "/v1/embeddings"}, "url is '/v1/embeddings'"),
    ],
)
def test_a_line_that_cannot_be_answered_says_what_is_wrong(
    fields: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(LocalspecError, match=complaint.replace("[", r"\[")):
        asked(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"\x1b[2J": 1},
        {"prompt": "Hi", "json_schema": "\x1b[2J", "grammar": "\x1b"},
        {"prompt": "Hi", "json_schema": 5, "id": "\x1b[2J"},
        {"prompt": "Hi", "response_format": "\x1b[2J"},
        {"prompt": "Hi", "grammar": ["\x1b[2J"]},
        {"prompt": "Hi", "reply_options": {"\x1b[2J": 1}},
        {"body": {"messages": USER, "\x1b[2J": 1}},
        {"body": {"messages": USER, "n": "\x1b[2J"}},
        {"messages": [{"role": "\x1b[2J", "content": "x"}]},
    ],
)
def test_what_is_wrong_is_said_without_what_a_terminal_would_obey(fields: dict[str, Any]) -> None:
    with pytest.raises(LocalspecError) as caught:
        asked(**fields)
    assert str(caught.value).isprintable()


SCHEMA = {"type": "object", "properties": {"a": {"type": "null"}}}


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({"grammar": None, "temperature": None}, {"grammar": 'root ::= "run"'}),
        ({"json_schema": SCHEMA}, {"json_schema": SCHEMA}),
        ({"json_schema": '{"type": "null"}'}, {"json_schema": {"type": "null"}}),
        ({"json_schema": True}, {"json_schema": True}),
        ({"response_format": {"type": "json_object"}}, {"json_schema": {"type": "object"}}),
        ({"response_format": {"type": "text"}}, {}),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
            {"json_schema": SCHEMA},
        ),
        ({"grammar": 'root ::= "line"'}, {"grammar": 'root ::= "line"'}),
        ({"regex": "[a-z]+"}, {"regex": "[a-z]+"}),
        ({"lark": 'start: "line"'}, {"lark": 'start: "line"'}),
    ],
)
def test_a_form_of_the_answer_replaces_that_of_the_run(
    fields: dict[str, Any], options: dict[str, Any]
) -> None:
    form = Form(ReplyOptions(grammar='root ::= "run"'))
    assert asked(form, prompt="Hi", seed=1, **fields).options == ReplyOptions(seed=1, **options)


def test_raw_text_has_neither_turns_nor_a_system_prompt() -> None:
    form = Form(ReplyOptions(), raw=True)
    with pytest.raises(UsageError, match="messages need the chat template"):
        asked(form, messages=USER)
    with pytest.raises(UsageError, match="messages need the chat template"):
        asked(form, body={"messages": USER})
    with pytest.raises(UsageError, match="no system prompt"):
        asked(form, prompt="Once", system="Be brief.")


@pytest.mark.parametrize(
    ("fields", "known"),
    [({"id": 0}, 0), ({"id": "", "custom_id": "c"}, "c"), ({"id": None}, None), ({}, None)],
)
def test_an_id_is_a_text_or_a_whole_number(fields: dict[str, Any], known: object) -> None:
    assert line_id(line(**fields)) == known


def test_seeds_depend_on_run_and_id_and_nothing_else() -> None:
    assert line_seed(1, "a", 3) == line_seed(1, "a", 4)
    seeds = [line_seed(1, "5", 1), line_seed(1, 5, 1), line_seed(1, None, 5), line_seed(2, 5, 1)]
    assert len(set(seeds)) == 4
    # Fixed for good: answers of earlier versions are taken up.
    assert line_seed(1, "a", 1) == 2547111910
