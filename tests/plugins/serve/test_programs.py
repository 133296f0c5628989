"""Programs that people have, at a real port: `curl`, and from environments of their own `llm`, `litellm`, pydantic's, smolagents and Zod, installed once, where `LOCALSPEC_TEST_CACHE` says."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from localspec.messages import ToolResult
from tests.chat.toy_calls import hermes
from tests.plugins.serve.serving import served
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
    with whole(cache_folder() / f"{package}-{sys.implementation.cache_tag}") as (folder, is_new):
        if is_new:
            venv.create(folder, clear=True, with_pip=True)
            pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", package]
            subprocess.run(pip, check=True)
    return folder / "bin"


@contextmanager
def whole(folder: Path) -> Iterator[tuple[Path, bool]]:
    """Lock a folder, and say whether it is still to be filled."""
    with Path(f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        is_new = not (folder / "whole").exists()
        yield folder, is_new
        (folder / "whole").touch()


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


PLAN = {"title": "Walk", "steps": [{"text": "go", "cost": "1.5"}], "pair": [1, "a"], "due": None}
PYDANTIC = """
import asyncio, datetime, decimal, json, sys
from typing import Annotated, Literal
from pydantic import BaseModel, Field
from pydantic_ai import Agent, NativeOutput, PromptedOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

class Step(BaseModel):
    text: str
    level: Literal["low", "high"] = "low"
    cost: decimal.Decimal | None = None

class Plan(BaseModel):
    title: Annotated[str, Field(min_length=1, max_length=20)]
    steps: list[Step] = Field(max_length=3)
    pair: tuple[int, str]
    labels: set[str] = Field(default_factory=set, max_length=2)
    by_level: dict[Literal["low", "high"], int] = {}
    due: datetime.date | None = None

kind = {"chat": OpenAIChatModel, "responses": OpenAIResponsesModel}[sys.argv[2]]
model = kind("a-pair", provider=OpenAIProvider(base_url=sys.argv[1] + "/v1", api_key="none"))
limits = {"max_tokens": 400}
told = {}
for form in (NativeOutput, ToolOutput, PromptedOutput):
    agent = Agent(model, output_type=form(Plan), model_settings=limits)
    text = "call" if form is ToolOutput else "walk"
    told[form.__name__] = agent.run_sync(text).output.model_dump(mode="json")

agent = Agent(model, model_settings=limits)
told["calls"] = []

@agent.tool_plain
def area(of: str, unit: Literal["km2", "mi2"] = "km2", day: datetime.date | None = None) -> str:
    told["calls"].append([of, unit, day])
    return "1285216"

told["answer"] = agent.run_sync("Peru?").output

async def streamed():
    async with Agent(model, output_type=NativeOutput(Plan), model_settings=limits).run_stream("walk") as run:
        return (await run.get_output()).model_dump(mode="json")

told["streamed"] = asyncio.run(streamed())
print(json.dumps(told))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["chat", "responses"])
def test_pydantics_agents_get_their_models_and_their_calls(kind: str) -> None:
    answers = {
        "1285216": "It is large.",
        "Peru": hermes("area", of="Peru"),
        "walk": json.dumps(PLAN),
    }
    answers["call"] = hermes("final_result", **PLAN)
    with served({"calls": True, "answers": answers, "n_ctx": 20_000}) as server:
        python = str(installed("pydantic-ai-slim[openai]") / "python")
        told = json.loads(ended([python, "-c", PYDANTIC, server.url, kind]).stdout.splitlines()[-1])
    plan: dict[str, Any] = {
        **PLAN,
        "steps": [{"text": "go", "level": "low", "cost": "1.5"}],
        "labels": [],
        "by_level": {},
    }
    assert [
        told[each] for each in ("NativeOutput", "ToolOutput", "PromptedOutput", "streamed")
    ] == [plan] * 4
    assert (told["calls"], told["answer"]) == ([["Peru", "km2", None]], "It is large.")


SMOLAGENTS = """
import json, sys
from smolagents import CodeAgent, OpenAIServerModel, ToolCallingAgent, tool

@tool
def area(of: str, miles: bool | None = False) -> str:
    '''How large a country is.

    Args:
        of: its name.
        miles: whether in square miles.
    '''
    return "1285216"

model = OpenAIServerModel("a-pair", api_base=sys.argv[1] + "/v1", api_key="none", max_tokens=300)
told = []
for stream in (False, True):
    more = {"tools": [area], "model": model, "max_steps": 3, "stream_outputs": stream, "verbosity_level": 0}
    for agent, text in (
        (ToolCallingAgent(**more), "Peru?"),
        (CodeAgent(**more), "in code?"),
        (CodeAgent(**more, use_structured_outputs_internally=True), "in JSON?"),
    ):
        answer = str(agent.run(text))
        told.append([answer, [str(each.error) for each in agent.memory.steps if getattr(each, "error", None)]])
print("\\n" + json.dumps(told))
"""


@pytest.mark.slow
def test_smolagents_carry_out_calls_code_and_code_in_json(tmp_path: Path) -> None:
    code = "final_answer(area(of='Peru'))"
    answers = {
        "Peru?": hermes("area", of="Peru"),
        "in code?": f"Thought: I ask.\n<code>\n{code}\n</code>",
        "in JSON?": json.dumps({"thought": "I ask.", "code": code}),
        "1285216": hermes("final_answer", answer="1285216"),
    }
    with served({"calls": True, "answers": answers, "n_ctx": 40_000}) as server:
        python = str(installed("smolagents[openai]") / "python")
        (tmp_path / "agents.py").write_text(SMOLAGENTS)  # it reads the source of tools
        done = ended([python, "agents.py", server.url], cwd=tmp_path)
    told = json.loads(done.stdout.splitlines()[-1])
    assert told == [["1285216", []]] * 6


ZOD = """
import OpenAI from "openai";
import { z } from "zod";
import { zodFunction, zodResponseFormat, zodResponsesFunction, zodTextFormat } from "openai/helpers/zod";
const client = new OpenAI({ baseURL: process.argv[2] + "/v1", apiKey: "none", maxRetries: 0 }), model = "a-pair";
const Person = z.object({
  name: z.string().min(1), email: z.email().nullable(), tags: z.array(z.string()).max(3), role: z.enum(["admin", "user"]), at: z.iso.datetime().nullable(),
  kind: z.discriminatedUnion("type", [z.object({ type: z.literal("a"), n: z.int().min(0).max(9) }), z.object({ type: z.literal("b"), s: z.string().regex(/^[a-z]+$/) })]),
});
const Area = z.object({ of: z.string(), unit: z.enum(["km2", "mi2"]), day: z.union([z.iso.date(), z.null()]) });
const ann = { model, messages: [{ role: "user", content: "Ann" }], response_format: zodResponseFormat(Person, "person") };
const peru = { model, messages: [{ role: "user", content: "Peru?" }] }, told = {}, calls = [];
told.people = [
  (await client.chat.completions.parse(ann)).choices[0].message.parsed,
  (await client.chat.completions.stream(ann).finalChatCompletion()).choices[0].message.parsed,
  (await client.responses.parse({ model, input: "Ann", text: { format: zodTextFormat(Person, "person") } })).output_parsed,
];
const area = zodFunction({ name: "area", parameters: Area, function: (a) => { calls.push(a); return "1285216"; } });
for (const stream of [false, true]) told[stream] = await client.chat.completions.runTools({ ...peru, stream, tools: [area] }).finalContent();
const { choices } = await client.chat.completions.parse({ ...peru, tool_choice: "required", tools: [zodFunction({ name: "area", parameters: Area })] });
const { output } = await client.responses.parse({ model, input: "Peru?", tool_choice: "required", tools: [zodResponsesFunction({ name: "area", parameters: Area })] });
told.calls = [...calls, choices[0].message.tool_calls[0].function.parsed_arguments, output[0].parsed_arguments];
console.log(JSON.stringify(told));
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="no npm")
def test_zods_types_come_back_as_they_are() -> None:
    ann = {"name": "Ann", "email": "a@example.org", "tags": ["x"], "role": "admin", "at": "2026-11-29T07:00:00Z", "kind": {"type": "b", "s": "abc"}}  # fmt: skip
    area = {"of": "Peru", "unit": "km2", "day": None}
    answers = {"1285216": "It is large.", "Peru": hermes("area", **area), "Ann": json.dumps(ann)}
    with whole(cache_folder() / "zod-and-openai") as (folder, is_new):
        if is_new:
            folder.mkdir(exist_ok=True)
            ended(["npm", "install", "--silent", "zod@4", "openai@6"], cwd=folder)
        (folder / "zod.mjs").write_text(ZOD)
    with served({"calls": True, "answers": answers}) as server:
        told = json.loads(ended(["node", "zod.mjs", server.url], cwd=folder).stdout)
    assert told["people"] == [ann] * 3
    assert told["calls"] == [area] * 4
    assert (told["false"], told["true"]) == ("It is large.", "It is large.")
