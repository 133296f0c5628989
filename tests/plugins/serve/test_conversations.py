"""One conversation by each interface gives one prompt, in templates that demand ids, an order, or turns in turn."""

from types import SimpleNamespace
from typing import Any

import pytest

from localspec.chat.template import ChatTemplate
from localspec.messages import Message
from localspec.plugins.serve import ollama, responses
from localspec.plugins.serve.media_parts import conversation
from localspec.plugins.serve.tools import anthropic_messages
from tests.vocabularies import real_templates

ARGUMENTS = {"city": "Rome"}, {"city": "Oslo"}
ASK, MORE = {"role": "user", "content": "How warm?"}, "In Celsius?"


def by_chat() -> Any:
    calls = [
        {"id": f"call_{at}", "type": "function", "function": {"name": "look", "arguments": each}}
        for at, each in enumerate(ARGUMENTS)  # as an object, as some programs send it
    ]
    results = [
        {"role": "tool", "tool_call_id": f"call_{at}", "content": f"of {at}"} for at in (1, 0)
    ]
    turn = {"role": "assistant", "content": None, "reasoning": "Hm.", "tool_calls": calls}
    return [ASK, turn, *results, {"role": "user", "content": MORE}]


def by_ollama() -> Any:
    """Without ids, as Ollama's own client has it; results in order."""
    calls = [{"function": {"name": "look", "arguments": each}} for each in ARGUMENTS]
    results = [{"role": "tool", "tool_name": "look", "content": f"of {at}"} for at in (0, 1)]
    turn = {"role": "assistant", "content": "", "thinking": "Hm.", "tool_calls": calls}
    return ollama._messages([ASK, turn, *results, {"role": "user", "content": MORE}])


def by_messages() -> Any:
    """Results and the next question in one message, which Anthropic's interface allows."""
    calls = [
        {"type": "tool_use", "id": f"toolu_{at}", "name": "look", "input": each}
        for at, each in enumerate(ARGUMENTS)
    ]
    results = [
        {"type": "tool_result", "tool_use_id": f"toolu_{at}", "content": f"of {at}"}
        for at in (1, 0)
    ]
    turn = {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm."}, *calls]}
    words = {"type": "text", "text": MORE}
    return anthropic_messages([ASK, turn, {"role": "user", "content": [*results, words]}])


def by_responses() -> tuple[Message, ...]:
    calls = [
        {"type": "function_call", "call_id": f"c{at}", "name": "look", "arguments": each}
        for at, each in enumerate(ARGUMENTS)
    ]
    results = [
        {"type": "function_call_output", "call_id": f"c{at}", "output": f"of {at}"} for at in (1, 0)
    ]
    thoughts = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm."}]}
    body: Any = SimpleNamespace(
        input=[ASK, thoughts, *calls, *results, {"role": "user", "content": MORE}],
        instructions=None,
    )
    service: Any = SimpleNamespace(sees=False, folder=None)
    return responses._messages(body, service)[0]


@pytest.mark.parametrize(
    "name",
    [
        "Mistral-Small-3.2-24B-Instruct-2506",
        "mistralai-Ministral-3-14B-Reasoning-2512",
        "Qwen3.5-4B",
        "meta-llama-Llama-3.1-8B-Instruct",
        "google-gemma-4-31B-it",
        "openai-gpt-oss-120b",
    ],
)
def test_each_interface_gives_the_same_prompt(name: str) -> None:
    template = ChatTemplate(real_templates()[name].read_text(), "<s>", "</s>")
    said = [conversation(each(), None) for each in (by_chat, by_ollama, by_messages)]
    prompts = [template.render(each) for each in (*said, by_responses())]
    order = [prompts[0].index(each) for each in ("How warm?", "Rome", "of 0", "of 1", MORE)]
    assert order == sorted(order)
    if "Small-3.2" in name:  # it writes the ids, which are each interface's own
        assert len({len(each) for each in prompts}) == 1
    else:
        assert len({*prompts}) == 1
