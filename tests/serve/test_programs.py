"""Programs that people have, at a real port: `curl`, and from environments of their own `llm` and `litellm`, installed once, where `LOCALSPEC_TEST_CACHE` says."""

import fcntl
import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from localspec.messages import ToolResult
from tests.chat.toy_calls import hermes
from tests.serve.serving import served
from tests.vocabularies import cache_folder

QUESTION = "Name a river."


def test_curl_gets_an_answer_a_stream_and_an_error() -> None:
    with served({"otherwise": ["The Rhine."]}) as server:
        body: dict[str, Any] = {"messages": [{"role": "user", "content": QUESTION}]}

        def curl(**more: Any) -> str:
            text = json.dumps({**body, **more})
            command = ["curl", "-sN", f"{server.url}/v1/chat/completions", "-d", text]
            return subprocess.run(command, capture_output=True, check=True, text=True).stdout

        assert json.loads(curl())["choices"][0]["message"]["content"] == "The Rhine."
        *_, last, end = curl(stream=True).split("\n\n")
        assert (last, end) == ("data: [DONE]", "")
        assert "top_k" in json.loads(curl(top_k=-2))["error"]["message"]


def installed(package: str) -> Path:
    folder = cache_folder() / f"{package}-{sys.implementation.cache_tag}"
    with Path(f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        whole = folder / "whole"
        if not whole.exists():
            venv.create(folder, clear=True, with_pip=True)
            pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", package]
            subprocess.run(pip, check=True)
            whole.touch()
    return folder / "bin"


def ended(words: list[str], **how: Any) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end, at which nothing has failed."""
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    done = subprocess.run(words, check=False, **streams, **how)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
def test_llm_carries_out_what_is_called_and_sends_it_back(tmp_path: Path) -> None:
    about = "- {{model_id: here, model_name: a-pair, api_base: '{}/v1', supports_tools: true}}\n"
    code = 'def area(of: str) -> int:\n    "Return how large a country is."\n    return 1285216\n'
    (tmp_path / "functions.py").write_text(code)
    # It sends a key in any case, and wants one.
    env = {**os.environ, "LLM_USER_PATH": str(tmp_path), "OPENAI_API_KEY": "none"}
    script = {"calls": True, "answers": {"Peru": f"Wait.\n{hermes('area', of='Peru')}"}}
    with served({**script, "otherwise": ["It is large."]}) as server:
        (tmp_path / "extra-openai-models.yaml").write_text(about.format(server.url))
        for more in ((), ("--no-stream",)):
            words = [str(installed("llm") / "llm"), "-m", "here", *more, "--functions"]
            done = ended([*words, "functions.py", "Peru?"], env=env, cwd=tmp_path)
            assert done.stdout.strip() == "Wait. It is large."
        results = [part for asked in server.asked for part in asked.messages[-1].parts]  # type: ignore[union-attr]
        texts = [each.text for each in results if isinstance(each, ToolResult)]
        assert texts == ["1285216"] * 2


LITELLM = """
import json, sys, litellm
litellm.suppress_debug_info = True
url, kind = sys.argv[1:]
def ask(text, said=(), **more):
    messages = [{"role": "user", "content": text}, *said]
    return litellm.completion(model=kind + "/a-pair", api_base=url, messages=messages, max_tokens=200, **more)
def words(stream):
    return "".join(each.choices[0].delta.content or "" for each in stream)
whole = ask("river?").choices[0]
cut = ask("river?", seed=3, stop=["hin"]).choices[0]
told = {"whole": [whole.message.content, whole.finish_reason], "stream": words(ask("river?", stream=True)), "cut": cut.message.content}
form = {"type": "json_schema", "json_schema": {"name": "km", "schema": {"type": "object", "properties": {"km": {"type": "integer"}}}}}
told["form"] = ask("JSON", response_format=form).choices[0].message.content
try:
    litellm.completion(model=kind + "/none", api_base=url, messages=[{"role": "user", "content": "x"}])
except litellm.NotFoundError as error:
    told["error"] = str(error)
if kind == "ollama_chat":
    area = {"name": "area", "parameters": {"type": "object", "properties": {"of": {"type": "string"}}}}
    tools = [{"type": "function", "function": area}]
    called = ask("Peru?", tools=tools).choices[0]
    call = called.message.tool_calls[0]
    result = {"role": "tool", "tool_call_id": call.id, "content": "1285216"}
    last = ask("Peru?", [called.message, result], tools=tools).choices[0].message.content
    chunks = [each.choices[0] for each in ask("Peru?", tools=tools, stream=True)]
    pieces = [each for chunk in chunks for each in chunk.delta.tool_calls or ()]
    told["call"] = [called.finish_reason, call.function.name, call.function.arguments, last]
    told["streamed"] = [each.function.name for each in pieces]
print(json.dumps(told))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ollama_chat", "ollama"])
def test_litellm_asks_as_it_asks_ollama(kind: str) -> None:
    answers = {"river": "The Rhine.", "JSON": '{"km": 1233}', "Peru": hermes("area", of="Peru")}
    answers["1285216"] = "It is large."
    env = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    with served({"calls": True, "answers": answers}) as server:
        words = [str(installed("litellm") / "python"), "-c", LITELLM, server.url, kind]
        done = ended(words, env=env)
        told = json.loads(done.stdout.splitlines()[-1])
    assert told["whole"] == ["The Rhine.", "stop"]
    assert told["stream"] == "The Rhine."
    assert told["cut"] == "The R"
    assert json.loads(told["form"]) == {"km": 1233}
    assert "there is no model 'none'" in told["error"]
    if kind == "ollama_chat":
        finish, name, arguments, last = told["call"]
        assert (finish, name, json.loads(arguments)) == ("tool_calls", "area", {"of": "Peru"})
        assert last == "It is large."
        assert told["streamed"] == ["area"]
