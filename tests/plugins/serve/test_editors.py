"""Requests as editors send them, field by field, and what those read of the answers.

Sources: llama.vim a1c8e6e, llama.vscode 0.0.63, Continue d0a3c0b, and Zed's crates `open_ai`, `edit_prediction`, `cloud_llm_client`.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.chat.toy_calls import hermes
from tests.plugins.serve.serving import (
    CHAT,
    FIM,
    GENERATE,
    INFILL,
    TALK,
    TEXT,
    Served,
    served,
    turn,
    user,
)

Fields = dict[str, Any]
ANSWER = "return x"
SCRIPT = {
    "otherwise": [ANSWER],
    "answers": {"Open": hermes("read", path="a.py")},
    "calls": True,
    "fim": FIM,
}
QWEN = turn("<|fim_prefix|>def f(x):\n    <|fim_suffix|>\n<|fim_middle|>")  # as the double reads it
MARKS = ["<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"]
SYSTEM = {"role": "system", "content": "You are an expert coder."}
ASKED = [SYSTEM, user("INSTRUCTION: say it")]
EXTRA = [{"filename": "a.py", "text": "x = 1", "time": 3}]
GAP: Fields = {"id_slot": 0, "input_prefix": "def f(x):\n", "input_suffix": "\n", "prompt": "    "}
FILLS: Fields = {**GAP, "input_extra": EXTRA, "n_predict": 128, "n_indent": 4, "top_k": 40}
FILLS |= {"samplers": ["top_k", "top_p", "infill"], "stream": False, "cache_prompt": True}
FILLS |= {"t_max_prompt_ms": 500, "t_max_predict_ms": 10_000}
AHEAD: Fields = {"n_predict": 0, "samplers": [], "stream": False, "cache_prompt": True}
PATH = {"type": "object", "properties": {"path": {"type": "string"}}}
READ: Fields = {"name": "read", "description": "Read a file.", "parameters": PATH}
TOOLS: Fields = {"tools": [{"type": "function", "function": READ}], "tool_choice": "auto"}
CALL: Fields = {"name": "read", "arguments": '{"path": "a.py"}'}
OPENED = [
    user([{"type": "text", "text": "Open a.py"}]),
    {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": CALL}]},
    {"role": "tool", "content": "x = 1", "tool_call_id": "1"},
]  # fmt: skip
OLLAMAS_CALL = {"function": {"name": "read", "arguments": {"path": "a.py"}}}
OLLAMAS = [
    {**user("Open a.py"), "images": None},
    {"role": "assistant", "content": "", "tool_calls": [OLLAMAS_CALL], "images": None, "thinking": None},
    {"role": "tool", "tool_name": "read", "content": "x = 1"},
]  # fmt: skip
TIMES = [
    f"timings/{part}_{figure}"
    for part in ("prompt", "predicted")
    for figure in ("n", "ms", "per_token_ms", "per_second")
]

REQUESTS: dict[str, tuple[str, Fields, str]] = {
    "llama.vim, a gap": (INFILL, {**FILLS, "stop": [], "top_p": 0.90, "model": "", "response_fields": ["content", *TIMES, "truncated", "tokens_cached"]}, ANSWER),
    "llama.vim, read ahead": (INFILL, {**FILLS, **AHEAD, "prompt": "", "temperature": 0.0, "t_max_predict_ms": 1, "response_fields": [""]}, ""),
    "llama.vim, an instruction ahead": (CHAT, {**AHEAD, "id_slot": 1, "messages": [SYSTEM, user("")], "response_fields": [""]}, ""),
    "llama.vim, an instruction": (CHAT, {"id_slot": 1, "messages": ASKED, "min_p": 0.1, "temperature": 0.1, "samplers": ["min_p", "temperature"], "stream": True, "cache_prompt": True, "model": ""}, ANSWER),
    "llama.vscode, a gap": (INFILL, {**FILLS, "n_cmpl": 1, "top_p": 0.99}, ANSWER),
    "llama.vscode, its agent": (CHAT, {"messages": [SYSTEM, *OPENED], "stream": True, "model": "a-pair", **TOOLS, "max_tokens": 512}, ANSWER),
    "Zed, a prediction": (TEXT, {"model": "a-pair", "prompt": QWEN, "max_tokens": 64, "stop": MARKS}, ANSWER),
    "Zed, a prediction by Ollama's interface": (GENERATE, {"model": "a-pair", "prompt": QWEN, "raw": True, "stream": False, "options": {"num_predict": 64, "temperature": 0.2, "stop": MARKS}}, ANSWER),
    "Zed, its agent": (CHAT, {"model": "a-pair", "messages": [SYSTEM, *OPENED], "stream": True, "stream_options": {"include_usage": True}, "max_completion_tokens": 512, **TOOLS, "parallel_tool_calls": False, "prompt_cache_key": "thread-1"}, ANSWER),
    "Zed, its agent by Ollama's interface": (TALK, {"model": "a-pair", "messages": OLLAMAS, "stream": True, "keep_alive": "5m", "options": {"num_ctx": 4096, "num_predict": None, "stop": []}, "think": False, "tools": TOOLS["tools"]}, ANSWER),
    "Continue, a gap": (TEXT, {"model": "a-pair", "prompt": QWEN, "max_tokens": 512, "stream": True, "stop": [*MARKS, "<|im_end|>", "/src/", "#- coding: utf-8", "```"]}, ANSWER),
    "Continue, a gap by Ollama's interface": (GENERATE, {"model": "a-pair", "prompt": QWEN, "raw": True, "options": {"num_predict": 512, "stop": MARKS, "num_ctx": 8192}, "keep_alive": 1800, "stream": True}, ANSWER),
    "Continue, provider llama.cpp": ("/completion", {"model": "a-pair", "prompt": QWEN, "stream": True, "n_predict": 512, "frequency_penalty": 0, "presence_penalty": 0, "min_p": 0, "mirostat": 0, "stop": MARKS, "top_k": 40, "top_p": 1}, ANSWER),
}  # fmt: skip


@pytest.fixture(scope="module")
def engine() -> Iterator[Served]:
    with served(SCRIPT) as server:
        yield server


def events(text: str) -> list[Fields]:
    lines = [each.removeprefix("data: ") for each in text.split("\n") if each[:1] in {"d", "{"}]
    return [json.loads(each) for each in lines if each != "[DONE]"]


def written(event: Fields) -> str:
    """Return the text of an answer, or of an event, in any of the forms that editors read."""
    if "choices" not in event:
        return str((event.get("message") or event).get("content") or event.get("response", ""))
    choice: Fields = event["choices"][0] if event["choices"] else {}
    part: Fields = choice.get("message") or choice.get("delta") or {}
    return part.get("content") or choice.get("text") or ""


@pytest.mark.parametrize("name", REQUESTS)
def test_what_editors_send_is_answered_in_the_form_that_they_read(
    engine: Served, name: str
) -> None:
    path, body, text = REQUESTS[name]
    answer = engine.post(path, **body)
    assert answer.status_code == 200, answer.text
    parts = events(answer.text) if body.get("stream") else [answer.json()]
    assert "".join(map(written, parts)).endswith(text)
    if not text:
        assert "".join(map(written, parts)) == ""
    if "response_fields" in body and text:
        assert list(parts[0]) == body["response_fields"]
    usage = body.get("stream_options")
    if usage or (path == TEXT and "stream" not in body):
        assert parts[-1]["usage"]["total_tokens"] > 0
    if path in {CHAT, TEXT}:
        assert all({"id", "object", "created", "model"} <= each.keys() for each in parts)
        reasons = [each["choices"][0]["finish_reason"] for each in parts if each["choices"]]
        assert reasons[-1] in {"stop", "length"}


@pytest.mark.parametrize(
    "name", [each for each, (path, body, _) in REQUESTS.items() if "tools" in body and path == CHAT]
)
def test_what_agents_of_editors_call_reaches_them(engine: Served, name: str) -> None:
    path, body, _ = REQUESTS[name]
    messages = [each for each in body["messages"] if each["role"] in {"system", "user"}]
    parts = events(engine.post(path, **{**body, "messages": messages}).text)
    calls = [call for each in parts if each["choices"] for call in each["choices"][0]["delta"].get("tool_calls", ())]  # fmt: skip
    assert [each["function"]["name"] for each in calls if "name" in each["function"]] == ["read"]
    arguments = "".join(each["function"].get("arguments", "") for each in calls)
    assert json.loads(arguments) == {"path": "a.py"}
