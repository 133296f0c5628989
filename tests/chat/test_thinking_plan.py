"""What `--think` comes to with real templates of reasoning models, and what is said where a template does not know it."""

import pytest

from localspec.calls import Tool
from localspec.chat.conversation import Conversation
from localspec.chat.template import ChatTemplate
from localspec.messages import Message, ToolCall, ToolResult
from tests.chat.toy_tokenizer import ToyTokenizer
from tests.vocabularies import real_templates

SETTINGS = ("on", "off", "low", "high", "16", "0")
QUESTION = [Message.user("How many?")]
ENDED, EFFORTLESS = "so thoughts are ended as they begin", "knows no effort"
DEFAULT = "="
"""The text is as it is where nothing is set."""

# By model: for each of SETTINGS where the prompt's text is another, or how it ends; what is said; whether a budget holds.
CASES: dict[str, dict[str, tuple[str, str, int | None]]] = {
    "Qwen-Qwen3-0.6B": {
        "off": ("<think>\n\n</think>\n\n", "", None),
        "0": ("<think>\n\n</think>\n\n", "", 0),
        "low": (DEFAULT, EFFORTLESS, None),
        "high": (DEFAULT, EFFORTLESS, None),
    },
    "Qwen3.5-4B": {
        "off": ("<think>\n\n</think>\n\n", "", None),
        "0": ("<think>\n\n</think>\n\n", "", 0),
        "low": (DEFAULT, EFFORTLESS, None),
        "high": (DEFAULT, EFFORTLESS, None),
    },
    "GLM-4.6": {
        "off": ("<|assistant|>\n<think></think>", "", None),
        "0": ("<|assistant|>\n<think></think>", "", 0),
        "low": (DEFAULT, EFFORTLESS, None),
        "high": (DEFAULT, EFFORTLESS, None),
    },
    "deepseek-ai-DeepSeek-V3.1": {
        "off": ("</think>", "", None),
        "0": ("</think>", "", 0),
        "low": (DEFAULT, EFFORTLESS, None),
        "high": (DEFAULT, EFFORTLESS, None),
    },
    "deepseek-ai-DeepSeek-V4-Flash-0731": {
        "off": ("</think>", "", None),
        "0": ("</think>", "", 0),
        "low": (DEFAULT, "", None),
        "high": ("Reasoning Effort: Absolute maximum", "", None),
    },
    "Kimi-K2-Thinking": {
        "off": (DEFAULT, ENDED, 0),
        "0": (DEFAULT, "", 0),
        "low": (DEFAULT, EFFORTLESS, None),
        "high": (DEFAULT, EFFORTLESS, None),
    },
    "openai-gpt-oss-120b": {
        "off": (DEFAULT, ENDED, 0),
        "0": (DEFAULT, "", 0),
        "low": ("Reasoning: low\n", "", None),
        "high": ("Reasoning: high\n", "", None),
    },
    "ByteDance-Seed-OSS": {
        "off": ("</seed:think>", "", None),
        "0": ("</seed:think>", "", 0),
        "16": ("which is 16.", "", 16),
        "low": (DEFAULT, EFFORTLESS, None),
        "high": (DEFAULT, EFFORTLESS, None),
    },
    "HuggingFaceTB-SmolLM3-3B": {
        "off": ("Reasoning Mode: /no_think", "", None),
        "0": ("Reasoning Mode: /no_think", "", 0),
        "low": (DEFAULT, EFFORTLESS, None),
        "high": (DEFAULT, EFFORTLESS, None),
    },
    "google-gemma-4-31B-it": {
        "off": ("<|turn>model\n<|channel>thought\n<channel|>", "", None),
        "0": ("<|turn>model\n<|channel>thought\n<channel|>", "", 0),
        "low": (DEFAULT, EFFORTLESS, None),
        "high": (DEFAULT, EFFORTLESS, None),
    },
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": {
        "off": ("<think></think>", "", None),
        "0": ("<think></think>", "", 0),
        "low": (DEFAULT, EFFORTLESS, None),
        "high": (DEFAULT, EFFORTLESS, None),
    },
    "ibm-granite-granite-3.3-2B-Instruct": {
        "on": ("Write your thoughts between <think></think>", "", None),
        "16": ("Write your thoughts between <think></think>", "", 16),
        "off": (DEFAULT, "", None),
        "0": (DEFAULT, "", 0),
        "low": ("Write your thoughts between", EFFORTLESS, None),
        "high": ("Write your thoughts between", EFFORTLESS, None),
    },
    "Cohere2MoE": {
        "off": ("<|START_THINKING|><|END_THINKING|>", "", None),
        "0": ("<|START_THINKING|><|END_THINKING|>", "", 0),
        "low": (DEFAULT, EFFORTLESS, None),
        "high": (DEFAULT, EFFORTLESS, None),
    },
    "MiniMax-M3": {
        "on": ("<mm:think>", "", None),
        "16": ("<mm:think>", "", 16),
        "off": ("</mm:think>", "", None),
        "0": ("</mm:think>", "", 0),
        "low": ("<mm:think>", EFFORTLESS, None),
        "high": ("<mm:think>", EFFORTLESS, None),
    },
    "Qwen-Qwen2.5-7B-Instruct": dict.fromkeys(SETTINGS, (DEFAULT, "changes nothing", None)),
}


def plain(name: str) -> ChatTemplate:
    return ChatTemplate(real_templates()[name].read_text(), "<s>", "</s>", model="m")


@pytest.mark.parametrize("name", CASES)
def test_a_real_template_thinks_as_it_is_set_to(name: str) -> None:
    template = plain(name)
    usual = template.render(QUESTION)
    for setting in SETTINGS:
        limit = int(setting) if setting.isdecimal() else None
        change, note, most = CASES[name].get(setting, (DEFAULT, "", limit))
        view = template.thinking_as(setting)
        text = view.render(QUESTION)
        assert (text == usual) is (change == DEFAULT), setting
        assert change == DEFAULT or change in text, (setting, text[-200:])
        assert view.thinking.budget == most, setting
        assert view.thinking.note.startswith("m's chat template ") is bool(note), setting
        assert note in view.thinking.note, setting
        assert "\n" not in view.thinking.note
        assert template.thinking_as(setting) is view
    assert template.thinking_as(None) is template


@pytest.mark.parametrize("name", [*real_templates()])
def test_no_template_fails_however_it_is_to_think(name: str) -> None:
    template = plain(name)
    tools = [Tool("find", {"type": "object", "properties": {}})]
    for setting in ("on", "off", "low", "medium", "high", "0", "9"):
        assert "How many?" in template.thinking_as(setting).render(QUESTION, tools=tools)


@pytest.mark.parametrize(
    ("name", "think", "said"),
    [
        ("Kimi-K3", "medium", "knows the efforts low and high, so think medium is think high"),
        ("tencent-Hy3", "medium", "knows the efforts low and high, so think medium is think high"),
        ("MiniMax-M2", "off", "cannot switch thinking off, so thoughts are ended as they begin"),
        ("Apertus-8B-Instruct", "9", "has no tags of thoughts, so no budget ends them"),
        ("llama-cpp-deepseek-r1", "low", "knows no effort, so think low is think on"),
        ("google-gemma-2-2b-it", "9", "knows no thinking, so think 9 changes nothing"),
    ],
)
def test_what_a_template_does_not_know_is_a_sentence(name: str, think: str, said: str) -> None:
    assert plain(name).thinking_as(think).thinking.note == f"m's chat template {said}"


def test_a_template_that_does_not_think_unless_an_effort_is_set_gets_one() -> None:
    template = plain("tencent-Hy3")
    ends = {
        each: template.thinking_as(each).render(QUESTION)[-30:] for each in ("on", "high", "off")
    }
    assert ends["on"] == ends["high"] != ends["off"]


@pytest.mark.parametrize(
    ("name", "close", "around"),
    [
        ("Qwen-Qwen3-0.6B", "</think>", ("\n", "\n\n")),
        ("Qwen3.5-4B", "</think>", ("\n", "\n\n")),
        ("GLM-4.6", "</think>", ("", "\n")),
        ("deepseek-ai-DeepSeek-V3.1", "</think>", ("", "")),
        ("llama-cpp-deepseek-r1", "</think>", ("\n", "\n\n")),
        ("google-gemma-4-31B-it", "<channel|>", ("", "")),
    ],
)
def test_thoughts_end_as_the_template_writes_it(
    name: str, close: str, around: tuple[str, str]
) -> None:
    assert plain(name).thoughts_end(close) == around


KEEPS = (
    *("Qwen3.5-4B", "openai-gpt-oss-120b", "GLM-4.6", "deepseek-ai-DeepSeek-V3.2"),
    *("mistralai-Ministral-3-14B-Reasoning-2512", "upstage-Solar-Open-100B", "LFM2.5-8B-A1B"),
)
KEEPS_ALL = ("mistralai-Ministral-3-14B-Reasoning-2512",)
DROPS = "Qwen-QwQ-32B", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "llama-cpp-deepseek-r1"


@pytest.mark.parametrize("name", [*KEEPS, *DROPS])
def test_thoughts_before_a_call_are_kept_as_the_template_says(name: str) -> None:
    template, tools = plain(name), [Tool("find", {"type": "object", "properties": {}})]
    call = ToolCall("callOne01", "find", "{}")
    messages = [
        *QUESTION,
        Message("assistant", (call,), "It has to be found."),
        Message("tool", (ToolResult("callOne01", "5"),)),
    ]
    conversation = Conversation(messages=messages, tools=tools)
    conversation.prompt_tokens(template, ToyTokenizer())
    text = template.render(messages, tools=tools)
    assert ("It has to be found." in text) is (name in KEEPS)
    # Of an answer before the last question no template keeps them but where it says so.
    earlier = [*QUESTION, Message.assistant("Five.", "It has to be found."), *QUESTION]
    assert ("It has to be found." in template.render(earlier)) is (name in KEEPS_ALL)
