"""Each rule on the real templates that need it, with the texts around it as their makers write them."""

import random
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from localspec.calls import Tool
from localspec.chat.template import ChatTemplate
from localspec.chat.template_rules import RESCUES, RULES
from localspec.errors import TemplateError
from localspec.messages import Message, Part, TextPart, ToolCall, ToolResult
from tests.vocabularies import real_templates

USER, SYSTEM, YES = Message.user("How warm?"), Message.system("Be brief."), Message.assistant("Yes")
TOOL = Tool("look", {"type": "object", "properties": {"at": {"type": "string"}}}, "It looks.")


def call(*ats: str, words: str = "", thinking: str = "", ids: str = "callOne0") -> Message:
    calls = (ToolCall(f"{ids}{n}", "look", f'{{"at": "{at}"}}') for n, at in enumerate(ats))
    parts: list[Part] = [TextPart(words)] if words else []
    return Message("assistant", (*parts, *calls), thinking)


def result(text: str, number: int = 0, ids: str = "callOne0") -> Message:
    return Message("tool", (ToolResult(f"{ids}{number}", text),))


def chat(name: str, **more: Any) -> ChatTemplate:
    """Return the template whose name begins so; a dot is its end."""
    (path,) = (path for each, path in real_templates().items() if f"{each}.".startswith(name))
    return ChatTemplate(path.read_text(), "<s>", "</s>", **more)


def prompt(name: str, *said: Message, tools: bool = False) -> str:
    """Return a prompt from the first question on."""
    text = chat(name).render(said, tools=[TOOL] if tools else [])
    return text[max(0, text.find("How warm?")) :]


@pytest.mark.parametrize(
    "ids", ["call_", "toolu_01Abc", "7f1c-44aa-", "chatcmpl-tool-é", "", "functions.look:"]
)
@pytest.mark.parametrize("name", ["Mistral-Small-3.2", "mistralai-Mistral-Nemo"])
def test_ids_have_nine_letters_and_digits_where_a_template_demands_it(name: str, ids: str) -> None:
    said = [USER, call("Rome", "Oslo", ids=ids), result("31", ids=ids), result("4", 1, ids=ids)]
    text = prompt(name, *said)
    found = re.findall(
        r'(?:\[CALL_ID\]|"id": "|\[TOOL_RESULTS\](?!\{)|"call_id": ")([^"\[]*)', text
    )
    assert found[:2] == found[2:]
    assert all(re.fullmatch("[A-Za-z0-9]{9}", each) for each in found)
    assert len(set(found)) == 2
    assert prompt("Mistral-Small-3.2", USER, call("Rome"), result("31")).count("callOne00") == 2


def test_questions_that_follow_one_another_are_one_where_roles_must_alternate() -> None:
    more, last = Message.user("In Rome."), Message.user("Today.")
    assert prompt("google-gemma-2", USER, more, last).startswith("How warm?\n\nIn Rome.\n\nToday.<end_of_turn>")  # fmt: skip
    assert prompt("mistralai-Ministral-3", USER, more) == "How warm?\n\nIn Rome.[/INST]"
    assert prompt("mistralai-Mistral-Nemo", USER, YES, more, last) == "How warm?[/INST]Yes</s>[INST]In Rome.\n\nToday.[/INST]"  # fmt: skip
    assert "In Rome.<|im_end|>\n<|im_start|>user\nToday." in prompt("Qwen-Qwen3", USER, more, last)
    two = prompt("Mistral-Small-3.2", USER, YES, Message.assistant("Or no"), more)
    assert two == "How warm?[/INST]Yes\n\nOr no</s>[INST]In Rome.[/INST]"


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("mistralai-Ministral-3", "[TOOL_RESULTS]31[/TOOL_RESULTS][INST]In F?[/INST]"),
        ("Mistral-Small-3.2", "[TOOL_RESULTS]callOne00[TOOL_CONTENT]31[/TOOL_RESULTS][INST]In F?[/INST]"),
        ("mistralai-Mistral-Nemo", '[TOOL_RESULTS]{"content": 31, "call_id": "callOne00"}[/TOOL_RESULTS][INST]In F?[/INST]'),
        ("Qwen-Qwen2.5", "<tool_response>\n31\n</tool_response><|im_end|>\n<|im_start|>user\nIn F?<|im_end|>\n<|im_start|>assistant\n"),
    ],
)  # fmt: skip
def test_a_question_may_follow_a_result(name: str, end: str) -> None:
    """As mistral-common writes it; no turn stands between."""
    asked = Message.user("In F?")
    assert prompt(name, USER, call("Rome"), result("31"), asked).endswith(end)
    assert "…" not in prompt(name, USER, call("Rome"), asked)
    said = [USER, call("Rome"), result("31"), asked, YES, asked]
    assert prompt(name, *said).count("In F?") == 2


@pytest.mark.parametrize(
    ("name", "between"),
    [
        ("meta-llama-Llama-3.1", '"at": "Rome"}}<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\n"31"<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n{"name": "look", "parameters": {"at": "Oslo"'),
        ("openai-gpt-oss", '{"at": "Rome"}<|call|><|start|>functions.look to=assistant<|channel|>commentary<|message|>"31"<|end|><|start|>assistant to=functions.look<|channel|>commentary json<|message|>{"at": "Oslo"}'),
        ("GigaChat3-10B", '{"at": "Rome"}}<|message_sep|>\n\nfunction result<|role_sep|>\n31<|message_sep|>'),
    ],
)  # fmt: skip
def test_calls_of_one_turn_are_parted_where_a_template_takes_one(name: str, between: str) -> None:
    results = [result(each, at) for at, each in enumerate(("31", "4", "17"))]
    text = prompt(name, USER, call("Rome", "Oslo", "Bern", words="Wait."), *results)
    assert between in text
    order = [text.index(each) for each in ("Rome", "31", "Oslo", "Bern", "17")]
    assert order == sorted(order)
    assert text.count("Wait.") == 1
    # A result that is not there yet.
    assert prompt(name, USER, call("Rome", "Oslo"), results[0]).count("31") == 1


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("google-gemma-4-31B-it.", "<|turn>model\nLet me look.<|tool_call>call:look{at:<|\"|>Rome<|\"|>}<tool_call|><|tool_response>response:look{value:<|\"|>31<|\"|>}<tool_response|>"),
        ("google-gemma-4-31B-it-inter", "<|turn>model\nLet me look.<|tool_call>call:look{at:<|\"|>Rome<|\"|>}<tool_call|><|tool_response>response:look{value:31}<tool_response|>"),
        ("meta-llama-Llama-3.3", '<|end_header_id|>\n\nLet me look.{"name": "look", "parameters": {"at": "Rome"}}'),
        ("NousResearch-Hermes-3", "<|im_start|>assistant\nLet me look.<tool_call>\n"),
        ("upstage-Solar", "<|begin|>assistant<|content|>Let me look.<|end|><|begin|>assistant<|tool_calls|>"),
        ("muse", "<|start|>assistant to=user<|message|>Let me look.<|eot|><|start|>assistant to=look"),
        ("Cohere2MoE", "<|START_TEXT|>Let me look.<|END_TEXT|>"),
        ("Qwen3.5", "Let me look.\n\n<tool_call>\n<function=look>"),
        ("llama-cpp-deepseek-r1", "Let me look.<｜tool▁calls▁begin｜>"),  # noqa: RUF001 - its own
    ],
)  # fmt: skip
def test_words_stand_before_the_call_beside_them(name: str, written: str) -> None:
    said = [USER, call("Rome", words="Let me look."), result("31")]
    assert written in prompt(name, *said)
    # In each of several turns, digits and letters of patterns among them.
    more = [call("Oslo", words="Also (7) \\1 there."), result("4", 0)]
    text = prompt(name, *said, *more)
    order = [text.index(each) for each in ("Let me look.", "Rome", "Also (7) \\1 there.", "Oslo")]
    assert order == sorted(order)


def test_a_prompt_ends_in_the_models_turn_behind_words_and_a_call() -> None:
    for words in ("", "Let me look."):
        text = prompt("google-gemma-4-31B-it-inter", USER, call("Rome", words=words), result("31"))
        assert text.endswith("<tool_response|>")
        answered = prompt("google-gemma-4-31B-it-inter", USER, call("Rome", words=words), result("{}"), YES, USER)  # fmt: skip
        assert answered.endswith("Yes<turn|>\n<|turn>user\nHow warm?<turn|>\n<|turn>model\n")


def test_a_system_prompt_is_kept_behind_results() -> None:
    said = [SYSTEM, USER, call("Rome"), result("31")]
    nemo = chat("mistralai-Mistral-Nemo").render(said)
    assert "[INST]Be brief.\n\nHow warm?[/INST]" in nemo
    said += [YES, Message.user("And Oslo?"), call("Oslo"), result("4")]
    nemo = chat("mistralai-Mistral-Nemo").render(said)
    assert (nemo.count("Be brief."), "[INST]Be brief.\n\nAnd Oslo?[/INST]" in nemo) == (1, True)
    pairs = [SYSTEM, Message.system("In French."), USER, YES, Message.system("Shorter."), USER]
    for name in ("google-gemma-2", "mistralai-Mistral-Nemo", "Qwen3.5", "meta-llama-Llama-3.1"):
        text = chat(name).render(pairs)
        assert [text.count(each) for each in ("brief.", "French.", "Shorter.")] == [1, 1, 1]


def test_calls_and_results_are_words_where_a_template_has_no_form_for_them() -> None:
    said = [USER, call("Rome", words="Hm."), result("31"), Message.user("And?")]
    written = 'Hm.<tool_call>\n{"name": "look", "arguments": {"at": "Rome"}}\n</tool_call>'
    gemma = prompt("google-gemma-2", *said)
    assert f"<start_of_turn>model\n{written}<end_of_turn>" in gemma
    assert "<tool_response>\n31\n</tool_response>\n\nAnd?<end_of_turn>" in gemma
    for name in ("microsoft-Phi-3.5", "HuggingFaceTB-SmolLM3", "llama-cpp-rwkv"):
        text = prompt(name, *said)
        assert written in text
        assert text.count("31") == 1
    lfm = prompt("LFM2-8B", USER, call("Rome", "Oslo"), result("31"), result("4", 1))
    assert "<|tool_call_start|>[look(at='Rome'), look(at='Oslo')]<|tool_call_end|>" in lfm


@pytest.mark.parametrize("given", ["", "null", '{"at": "Ro', "[]", "7", '{"at": "x"} {', '"\\'])
@pytest.mark.parametrize("name", ["Qwen3.5", "LFM2-8B", "GLM-4.7", "MiniMax-M2", "mistralai-Ministral-3", "deepseek-ai-DeepSeek-V4.", "NVIDIA-Nemotron-3"])  # fmt: skip
def test_arguments_never_fail(name: str, given: str) -> None:
    turn = Message("assistant", (ToolCall("callOne00", "look", given),))
    text = prompt(name, USER, turn, result("no JSON"), tools=True)
    assert "no JSON" in text
    assert ("unreadable" in text) == (given not in {"", "null"})


@pytest.mark.parametrize("name", ["MiniMax-M2", "openai-gpt-oss", "google-gemma-4-31B-it-inter", "Kimi-K3", "Apertus"])  # fmt: skip
def test_results_without_a_call_are_words(name: str) -> None:
    for said in ([USER, result("31"), USER], [result("31"), USER], [USER, YES, result("31")]):
        assert chat(name).render(said).count("31") >= 1


@pytest.mark.parametrize("name", ["google-gemma-2", "mistralai-Mistral-Nemo", "Mistral-Small-3.2"])
def test_an_answer_may_come_first(name: str) -> None:
    text = chat(name).render([SYSTEM, Message.assistant("Hello!"), USER])
    order = [text.index(each) for each in ("Hello!", "How warm?")]
    assert order == sorted(order)
    assert "Be brief." in text


def test_a_conversation_without_a_question_gets_one() -> None:
    for said in ([SYSTEM], [SYSTEM, call("Rome"), result("31")], [call("Rome"), result("31")]):
        for name in ("Qwen3.5", "mistralai-Mistral-Nemo", "google-gemma-2", "meta-llama-Llama-3.1"):
            text = chat(name).render(said)
            assert all(("31" if each.role == "tool" else each.text) in text for each in said)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("Qwen3.5", "<think>\nI wonder.\n</think>"),  # reasoning_content
        ("upstage-Solar", "<|think|>I wonder.<|end|>"),  # reasoning
        ("LFM2.5-8B", "I wonder."),  # thinking
        ("openai-gpt-oss", "<|channel|>analysis<|message|>I wonder.<|end|>"),
        ("mistralai-Ministral-3", "[THINK]I wonder.[/THINK]"),  # a part of the content
        ("poolside-Laguna-XS.2", "I wonder."),  # either
    ],
)
def test_thoughts_are_where_a_template_reads_them(name: str, written: str) -> None:
    said = [USER, call("Rome", thinking="I wonder."), result("31")]
    assert written in prompt(name, *said)
    if name == "openai-gpt-oss":  # thoughts and words beside a call are in one place
        said[1] = call("Rome", thinking="I wonder.", words="Wait.")
        assert "analysis<|message|>I wonder.\n\nWait.<|end|>" in prompt(name, *said)
    if name == "LFM2.5-8B":  # words are none of the thoughts, which leave with their turn
        said[1] = call("Rome", thinking="I wonder.", words="Wait.")
        assert "<think>I wonder.</think>Wait.<|tool_call_start|>" in prompt(name, *said)
        later = prompt(name, *said, YES, USER)
        assert ("Wait." in later, "I wonder." in later) == (True, False)


def test_todays_date_is_in_the_prompts_that_ask_for_it() -> None:
    def clock() -> datetime:
        return datetime(2026, 11, 29, tzinfo=UTC)

    for name in ("meta-llama-Llama-3.1", "meta-llama-Llama-3.2", "meta-llama-Llama-3.3"):
        assert "Today Date: 29 Nov 2026\n" in chat(name, clock=clock).render([USER])
    fire = chat("fireworks", clock=clock)
    assert "Today is Nov 29 2026." in fire.render([USER], tools=[TOOL])
    assert fire.render([USER]).index("[]") > 0, (
        "it asks for functions whether there are some or not"
    )


SCHEMAS: list[dict[str, Any]] = [
    {"type": "object"},
    {},
    {"type": "object", "properties": {"a": {}}},
    {"type": "object", "properties": {"a": {"type": "object"}, "b": {"type": "array"}}},
    {"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "object"}]}}},
    {"oneOf": [{"type": "object"}]},
    {
        "type": "object",
        "properties": {"a": {"type": ["string", "null"]}, "b": {"type": ["null"]}, "c": True},
    },
]


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("name", ["ByteDance", "CohereForAI-c4ai-command-r-plus", "meetkai-functionary-medium-v3.1", "google-gemma-4-31B-it-inter", "openai-gpt-oss", "NousResearch-Hermes-2", "GigaChat3-10B"])  # fmt: skip
def test_schemas_lack_what_they_may_lack(name: str, schema: dict[str, Any]) -> None:
    text = chat(name).render([USER], tools=[Tool("look", schema, 'See "<this>" & that')])
    assert "look" in text
    assert "&#34;" not in text
    assert "&amp;" not in text


def test_tools_take_the_template_that_is_named_for_them() -> None:
    plain = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    hermes = real_templates()["NousResearch-Hermes-3-Llama-3.1-8B-tool_use"].read_text()
    both = ChatTemplate(plain, "", "", for_tools=hermes)
    assert both.offering(tools=False) is both
    said = [USER, call("Rome"), result("31")]
    assert both.offering(tools=True).render(said, tools=[TOOL]) == ChatTemplate(hermes, "", "").render(said, tools=[TOOL])  # fmt: skip
    thinking = both.thinking_as("off").offering(tools=True)
    assert thinking.thinking.note == both.offering(tools=True).thinking_as("off").thinking.note
    alone = ChatTemplate(plain, "", "")
    assert alone.offering(tools=True) is alone
    with pytest.raises(TemplateError, match="another file"):
        ChatTemplate(plain, "", "", for_tools="{% if %}")


@pytest.mark.parametrize(("at", "role"), [(1, "user"), (3, "user"), (4, "assistant"), (6, "tool")])
def test_a_refusal_names_the_message(at: int, role: str) -> None:
    source = (
        "{% for m in messages %}{% if 'bad' in m.content %}{{ raise_exception('not this') }}{% endif %}"
        "{{ m.role }}: {{ m.content }}{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments }}"
        "{% endfor %}\n{% endfor %}"
    )
    said = [USER, YES, USER, YES, call("Rome"), result("31"), YES, USER]
    bad = Message("tool", (ToolResult("callOne00", "bad"),)) if role == "tool" else Message.from_text(said[at - 1].role, "bad")  # fmt: skip
    said[at - 1] = bad
    with pytest.raises(TemplateError) as caught:
        ChatTemplate(source, "", "", model="gemma").render(said)
    assert str(caught.value) == (
        f"gemma's chat template refuses message {at} ({role}): not this; change that message, or leave it out"
    )
    refusing = (
        "{% if tools %}{{ raise_exception('no tools here') }}{% endif %}{{ messages[0].content }}"
    )
    with pytest.raises(TemplateError, match="refuses the tools: no tools here"):
        ChatTemplate(refusing, "", "").render([USER], tools=[TOOL])


def test_each_rule_has_a_name_of_its_own() -> None:
    names = [each.name for each in RULES]
    assert len({*names}) == len(names)
    assert {each.name for each in RESCUES} & {*names} <= {"later system prompts in turns"}


def random_conversation(of: random.Random) -> list[Message]:
    """Return what no program should send: any roles in any order, words that are found again."""
    said, ids = list[Message](), "x"
    for at in range(of.randint(1, 6)):
        match of.choice(["system", "user", "user", "assistant", "call", "tool"]):
            case "system":
                said.append(Message.system(f"word{at}s"))
            case "user":
                said.append(Message.user(f"word{at}u"))
            case "assistant":
                said.append(Message.assistant(f"word{at}a", of.choice(["", "hm"])))
            case "call":
                ids = of.choice(["call_", "toolu_01", ""])
                said.append(call(*(f"word{at}c{n}" for n in range(of.randint(1, 3))), ids=ids))
            case _:
                said.append(result(f"word{at}r", of.randint(0, 2), ids))
    return [*said, Message.user("word9u")] if said[-1].role == "assistant" else said


@pytest.mark.first(8)
@pytest.mark.parametrize("name", [*real_templates()])
def test_no_conversation_is_refused_and_no_word_is_lost(name: str) -> None:
    template = ChatTemplate(real_templates()[name].read_text(), "<s>", "</s>")
    for seed in range(12):
        said = random_conversation(random.Random(seed))
        text = template.render(said)
        texts = [f"{each.text} {each.parts}" for each in said]
        words = {word for each in texts for word in re.findall(r"word\d[a-z]\d?", each)}
        assert {each for each in words if each not in text} == set(), seed
