"""What `--think` comes to with real templates of reasoning models, and what is said where a template does not know it."""

from typing import Any

import pytest

from localspec.calls import Tool
from localspec.chat.template import ChatTemplate
from localspec.chat.token_prefix import Conversation
from localspec.messages import Message, ToolCall, ToolResult
from tests.chat.toy_tokenizer import ToyTokenizer
from tests.vocabularies import real_templates

SETTINGS = ("on", "off", "low", "high", "16", "0")
QUESTION = [Message.user("How many?")]
TOOLS = [Tool("find", {"type": "object", "properties": {}})]
ENDED, EFFORTLESS = "so thoughts are ended as they begin", "knows no effort"
DEFAULT = "="
"""The text is as it is where nothing is set."""

Case = tuple[str, str, int | None]


def case(end: str = DEFAULT, note: str = "", effort: str = EFFORTLESS, **more: Case) -> Any:
    """Return how a text changes where thinking is off, or no token is left, and what is said; no effort is known."""
    off = (end, note, 0 if note else None)
    efforts = dict.fromkeys(("low", "high"), (DEFAULT, effort, None))
    return {"off": off, "0": (end, "", 0), **efforts, **more}


QWEN = case("<think>\n\n</think>\n\n")
GPT_OSS: Any = {each: (f"Reasoning: {each}\n", "", None) for each in ("low", "high")}
OPENS, MINIMAX = "Write your thoughts between <think></think>", "<mm:think>"
# By model: for each of SETTINGS where the prompt's text is another, or how it ends; what is said; whether a budget holds.
CASES: dict[str, dict[str, Case]] = {
    "Qwen-Qwen3-0.6B": QWEN,
    "Qwen3.5-4B": QWEN,
    "GLM-4.6": case("<|assistant|>\n<think></think>"),
    "deepseek-ai-DeepSeek-V3.1": case("</think>"),
    "deepseek-ai-DeepSeek-V4-Flash-0731": case("</think>", effort="", high=("Reasoning Effort: Absolute maximum", "", None)),
    "Kimi-K2-Thinking": case(note=ENDED),
    "openai-gpt-oss-120b": case(note=ENDED, **GPT_OSS),
    "ByteDance-Seed-OSS": case("</seed:think>") | {"16": ("which is 16.", "", 16)},
    "HuggingFaceTB-SmolLM3-3B": case("Reasoning Mode: /no_think"),
    "google-gemma-4-31B-it": case("<|turn>model\n<|channel>thought\n<channel|>"),
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": case("<think></think>"),
    "ibm-granite-granite-3.3-2B-Instruct": dict.fromkeys(("low", "high"), (OPENS[:27], EFFORTLESS, None)) | {"on": (OPENS, "", None), "16": (OPENS, "", 16), "off": (DEFAULT, "", None), "0": (DEFAULT, "", 0)},
    "Cohere2MoE": case("<|START_THINKING|><|END_THINKING|>"),
    "MiniMax-M3": case("</mm:think>") | {"on": (MINIMAX, "", None), "16": (MINIMAX, "", 16)} | dict.fromkeys(("low", "high"), (MINIMAX, EFFORTLESS, None)),
    "Qwen-Qwen2.5-7B-Instruct": dict.fromkeys(SETTINGS, (DEFAULT, "changes nothing", None)),
}  # fmt: skip


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


@pytest.mark.first(24)
@pytest.mark.parametrize("name", [*real_templates()])
def test_no_template_fails_however_it_is_to_think(name: str) -> None:
    template = plain(name)
    for setting in ("on", "off", "low", "medium", "high", "0", "9"):
        assert "How many?" in template.thinking_as(setting).render(QUESTION, tools=TOOLS)


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
    views = map(plain("tencent-Hy3").thinking_as, ("on", "high", "off"))
    on, high, off = (each.render(QUESTION)[-30:] for each in views)
    assert on == high != off


@pytest.mark.parametrize(
    ("name", "close", "before", "behind"),
    [
        ("Qwen-Qwen3-0.6B", "</think>", "\n", "\n\n"),
        ("GLM-4.6", "</think>", "", "\n"),
        ("deepseek-ai-DeepSeek-V3.1", "</think>", "", ""),
        ("llama-cpp-deepseek-r1", "</think>", "\n", "\n\n"),
        ("google-gemma-4-31B-it", "<channel|>", "", ""),
    ],
)
def test_thoughts_end_as_a_template_writes_it(
    name: str, close: str, before: str, behind: str
) -> None:
    assert plain(name).thoughts_end(close) == (before, behind)


KEEPS = (
    *("Qwen3.5-4B", "openai-gpt-oss-120b", "GLM-4.6", "deepseek-ai-DeepSeek-V3.2"),
    *("mistralai-Ministral-3-14B-Reasoning-2512", "upstage-Solar-Open-100B", "LFM2.5-8B-A1B"),
)
KEEPS_ALL = ("mistralai-Ministral-3-14B-Reasoning-2512",)
DROPS = "Qwen-QwQ-32B", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "llama-cpp-deepseek-r1"


@pytest.mark.parametrize("name", [*KEEPS, *DROPS])
def test_thoughts_before_a_call_are_kept_as_the_template_says(name: str) -> None:
    template, call = plain(name), ToolCall("callOne01", "find", "{}")
    called = Message("assistant", (call,), "It has to be found.")
    messages = [*QUESTION, called, Message("tool", (ToolResult("callOne01", "5"),))]
    Conversation(messages=messages, tools=TOOLS).prompt_tokens(template, ToyTokenizer())
    assert ("It has to be found." in template.render(messages, tools=TOOLS)) is (name in KEEPS)
    # Of an answer before the last question no template keeps them but where it says so.
    earlier = [*QUESTION, Message.assistant("Five.", "It has to be found."), *QUESTION]
    assert ("It has to be found." in template.render(earlier)) is (name in KEEPS_ALL)
