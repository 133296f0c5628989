"""Programs that people have, at a real port: `curl`, and from environments of their own `llm` and `litellm`.

The last two need versions of `openai` that exclude each other. They are installed once, where `LOCALSPEC_TEST_CACHE` says.
"""

import fcntl
import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from localspec.messages import ToolResult
from tests.chat.toy_calls import hermes
from tests.cli.command import PLAIN, started
from tests.serve.serving import served
from tests.serve.test_verb import url_of
from tests.vocabularies import cache_folder

QUESTION = "Name a river."
SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["Rhine", "Elbe"]}},
    "required": ["name"],
}
GREEDY = {"temperature": 0, "max_tokens": 12}


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
        assert "top_k" in json.loads(curl(top_k=-1))["error"]["message"]


@pytest.fixture(scope="module")
def url(smollm2_path: object) -> Iterator[str]:
    """Serve SmolLM2."""
    words = ("serve", "smollm2-135m", "--port", "0", "--ctx", "1024", "--forget", *PLAIN)
    with started(*words) as process:
        yield url_of(process)


def installed(package: str) -> Path:
    """Return where the commands of a package are, which has an environment of its own."""
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


def expected(url: str, *said: str) -> str:
    """Return what a request by hand gets; the second of two is what the answer to the first was, and so on."""
    roles = ("user", "assistant", "user")
    messages = [{"role": role, "content": text} for role, text in zip(roles, said, strict=False)]
    answer = httpx.post(
        f"{url}/v1/chat/completions", json={**GREEDY, "messages": messages}, timeout=600
    )
    text: str = answer.json()["choices"][0]["message"]["content"]
    return text


def asked_by_llm(folder: Path, url: str, model: str, *words: str, code: int = 0) -> str:
    """Return what `llm` prints, or complains of where it ends with a code."""
    (folder / "extra-openai-models.yaml").write_text(
        f"- {{model_id: here, model_name: {model}, api_base: '{url}/v1', supports_schema: true, supports_tools: true}}\n"
    )
    # It sends a key in any case, and wants one.
    env = {**os.environ, "LLM_USER_PATH": str(folder), "OPENAI_API_KEY": "none"}
    done = subprocess.run(
        [installed("llm") / "llm", "-m", "here", *words],
        capture_output=True,
        check=False,
        text=True,
        env=env,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == code, done.stderr
    return (done.stdout if code == 0 else done.stderr).strip()


@pytest.mark.slow
def test_llm_carries_out_what_is_called_and_sends_it_back(tmp_path: Path) -> None:
    functions = tmp_path / "functions.py"
    functions.write_text(
        'def area(of: str) -> int:\n    "Return how large a country is."\n    return 1285216\n'
    )
    script = {"calls": True, "answers": {"Peru": f"Wait.\n{hermes('area', of='Peru')}"}}
    with served({**script, "otherwise": ["It is large."]}) as server:
        for more in ((), ("--no-stream",)):
            words = (*more, "--functions", str(functions), "Peru?")
            assert asked_by_llm(tmp_path, server.url, "a-pair", *words) == "Wait. It is large."
        results = [part for asked in server.asked for part in asked.messages[-1].parts]  # type: ignore[union-attr]
        texts = [each.text for each in results if isinstance(each, ToolResult)]
        assert texts == ["1285216"] * 2


@pytest.mark.slow
@pytest.mark.weights
def test_llm_asks_streams_goes_on_and_keeps_a_schema(url: str, tmp_path: Path) -> None:
    greedy = [part for name, value in GREEDY.items() for part in ("-o", name, str(value))]

    def llm(*words: str, code: int = 0) -> str:
        return asked_by_llm(tmp_path, url, "smollm2-135m", *greedy, *words, code=code)

    first = expected(url, QUESTION)
    assert llm(QUESTION) == llm("--no-stream", QUESTION) == first.strip()
    assert llm("-c", "And another?") == expected(url, QUESTION, first, "And another?").strip()
    assert json.loads(llm("--schema", json.dumps(SCHEMA), QUESTION))["name"] in {"Rhine", "Elbe"}
    assert "context" in llm("x " * 2000, code=1)


LITELLM = """
import json, sys
import litellm

url, question, greedy = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
said = [{"role": "user", "content": question}]
asked = {"messages": said, "api_key": "none", **greedy}
openai = {"model": "openai/smollm2-135m", "api_base": f"{url}/v1"}
anthropic = {"model": "anthropic/smollm2-135m", "api_base": url}
text = {"model": "text-completion-openai/smollm2-135m", "api_base": f"{url}/v1"}
told = {}
for name, where in (("openai", openai), ("anthropic", anthropic)):
    told[name] = litellm.completion(**where, **asked).choices[0].message.content
    pieces = litellm.completion(**where, **asked, stream=True)
    told[f"{name} streamed"] = "".join(each.choices[0].delta.content or "" for each in pieces)
likely = litellm.completion(**openai, **asked, logprobs=True, top_logprobs=2).choices[0].logprobs
told["logprobs"] = [each.logprob for each in likely.content]
told["text"] = litellm.text_completion(**text, prompt="Once upon", api_key="none", **greedy).choices[0].text
try:
    litellm.completion(**{**openai, "model": "openai/nobody"}, **asked)
except litellm.NotFoundError as error:
    told["error"] = str(error)
print(json.dumps(told))
"""


@pytest.mark.slow
@pytest.mark.weights
def test_litellm_asks_by_every_interface(url: str) -> None:
    done = subprocess.run(
        [installed("litellm") / "python", "-c", LITELLM, url, QUESTION, json.dumps(GREEDY)],
        capture_output=True,
        check=False,
        text=True,
        env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    answer = expected(url, QUESTION)
    for name in ("openai", "openai streamed", "anthropic", "anthropic streamed"):
        assert told[name] == answer, name
    assert len(told["logprobs"]) == GREEDY["max_tokens"]
    assert all(each <= 0 for each in told["logprobs"])
    assert told["text"]
    assert "there is no model 'nobody'" in told["error"]
