"""`localspec serve` itself: a process on real weights, asked over a real port, and what it refuses to start with."""

import json
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from tests.cli.command import PLAIN, answer, assert_one_complaint, localspec, started
from tests.serve.clients import openai
from tests.waiting import PATIENCE_S, until

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "maximum": 150, "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}  # fmt: skip
LONG = (
    "Sum this up in a few words: " + "the river rises in the hills, and runs down to the sea. " * 14
)
QUESTIONS = (
    *("Name a river.", "Why is the sky blue?", "Count to five.", "What is tea?"),
    *("Repeat: pear, fig, plum, pear, fig, plum, pear.", "Say hello.", LONG, f"{LONG}Why?"),
)
_LIMIT = 16


@pytest.fixture(scope="module")
def url(smollm2_path: object) -> Iterator[str]:
    """Serve SmolLM2 with itself as its draft model."""
    words = ("serve", "smollm2-135m", "--draft-model", "smollm2-135m", "--exact", "--port", "0")
    with started(*words, "--parallel", "8", "--ctx", "1024", *PLAIN) as process:
        yield url_of(process)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0


def url_of(process: subprocess.Popen[bytes]) -> str:
    """Wait until a server listens, and return where."""
    assert process.stderr is not None
    text = ""
    for line in process.stderr:
        text += line.decode()
        if match := re.search(r"http://127\.0\.0\.1:\d+", text):
            return match[0]
    raise AssertionError(text)


def by_run(question: str, temperature: float, seed: int) -> str:
    """Return what `localspec run` answers without drafting."""
    done = answer(
        *("--json", "--exact", "--draft", "off", "--ctx", "1024", "-n", str(_LIMIT)),
        *("--temperature", str(temperature), "--seed", str(seed), "-m", "smollm2-135m", question),
    )
    text: str = json.loads(done.out)["text"]
    return text


@pytest.mark.slow
@pytest.mark.weights
def test_answers_are_those_of_run_alone_and_beside_seven_others(url: str) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", timeout=600)
    asked = {question: (0.8 * (number % 2), number) for number, question in enumerate(QUESTIONS)}
    wanted = {question: by_run(question, *how) for question, how in asked.items()}
    assert len({*wanted.values()}) > 4, "they say something"

    def ask(question: str, **own: Any) -> str:
        temperature, seed = asked[question]
        done = client.chat.completions.create(
            model="smollm2-135m",
            messages=[{"role": "user", "content": question}],
            temperature=temperature,
            seed=seed,
            max_completion_tokens=_LIMIT,
            extra_body={"localspec": own},
        )
        return done.choices[0].message.content or ""

    assert ask(QUESTIONS[0]) == wanted[QUESTIONS[0]]
    assert ask(LONG, draft="off") == wanted[LONG]
    for own in ({}, {"draft": "off"}, {"draft": "lookup"}):
        with ThreadPoolExecutor(len(QUESTIONS)) as threads:
            texts = threads.map(partial(ask, **own), QUESTIONS)
            assert dict(zip(QUESTIONS, texts, strict=True)) == wanted, own


@pytest.mark.slow
@pytest.mark.weights
def test_a_schema_is_kept_and_counted_for(url: str) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", timeout=600)
    done = client.chat.completions.create(
        model="smollm2-135m",
        messages=[{"role": "user", "content": "Describe Anna, 34, as JSON."}],
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "person", "schema": PERSON, "strict": True},
        },
        max_tokens=80,
        seed=3,
    )
    jsonschema.validate(json.loads(done.choices[0].message.content or ""), PERSON)
    metrics = httpx.get(f"{url}/metrics", timeout=PATIENCE_S).text
    assert re.search(r'localspec_tokens_total\{kind="completion"\} [1-9]', metrics)


@pytest.mark.parametrize(
    ("words", "word"),
    [
        (("--cors", "*"), "name each origin"),
        (("--host", "0.0.0.0"), "--api-key-file"),
        (("--api-key-file", "none.txt"), "none.txt"),
        (("--api-key-file", "empty.txt"), "has no keys"),
        (("--port", "99999"), "99999"),
        (("--port", "TAKEN"), "give another --port"),
        (("--max-queue", "0"), "0"),
        (("--keep-alive", "soon"), "soon"),
        (("--max-wait", "nan"), "--max-wait"),
        (("--max-wait", "inf"), "--max-wait"),
        (("--max-wait", "-1"), "--max-wait"),
        (("--host", "no.such.host.invalid", "--api-key-file", "keys.txt"), "no.such.host.invalid"),
        (("--gate", "none.toml"), "none.toml"),
        (("--api-key-file", "gated.txt"), "none.toml"),
        (("--api-key-file", "short.txt"), "line 2"),
    ],
)
def test_what_it_cannot_start_with_is_one_line(
    bare_machine: dict[str, str], tmp_path: Path, words: tuple[str, ...], word: str
) -> None:
    gated = "sesame-open-thyself gate=usual\nopen-sesame-open-now gate=none.toml\n"
    files = {
        "empty": "\n",
        "keys": "sesame-open-thyself\n",
        "gated": gated,
        "short": "# ours\nann sesame\n",
    }
    for name, text in files.items():
        (tmp_path / f"{name}.txt").write_text(text)
        (tmp_path / f"{name}.txt").chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        given = [port if each == "TAKEN" else each for each in words]
        done = localspec("serve", *given, env=bare_machine, cwd=tmp_path)
    assert_one_complaint(done, 2)
    assert word in done.err
    assert "sesame" not in done.err


def test_a_model_that_is_not_to_be_had_ends_it(bare_machine: dict[str, str]) -> None:
    done = localspec("serve", "smollm2-135m", "--port", "0", "--offline", env=bare_machine)
    assert done.code == 3
    assert done.err.startswith("localspec: ")
    assert "Traceback" not in done.err


def health_of(url: str, wanted: str) -> dict[str, Any]:
    """Return what a server says of itself once it is in a state."""

    def health() -> dict[str, Any]:
        answer: dict[str, Any] = httpx.get(f"{url}/health", timeout=PATIENCE_S).json()
        return answer

    assert until(lambda: health()["status"] == wanted), health()
    return health()


@pytest.mark.slow
@pytest.mark.weights
def test_models_are_loaded_by_name_let_go_and_loaded_again(
    smollm2_path: Path, bare_machine: dict[str, str]
) -> None:
    for name in ("one", "two"):
        done = localspec("import", str(smollm2_path), "--name", name, env=bare_machine)
        assert done.code == 0, done.err
    words = ("serve", "one", "--draft", "off", "--port", "0", "--ctx", "512", "--parallel", "1")
    with started(*words, "--keep-alive", "5s", *PLAIN, env=bare_machine) as process:
        url = url_of(process)
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", timeout=600, max_retries=0)

        def ask(model: str) -> tuple[str, str]:
            done = client.chat.completions.create(
                model=model,
                messages=[{"role": "user", "content": "Name a river."}],
                temperature=0,
                max_tokens=6,
            )
            return done.model, done.choices[0].message.content or ""

        first = ask("one")
        assert first[0] == "one"
        assert ask("two") == ("two", first[1])
        listed = [each.id for each in client.models.list()]
        assert listed[0] == "two"
        assert set(listed) >= {"one", "two"}
        assert health_of(url, "unloaded")["model"] == "one"
        assert ask("") == first
        with pytest.raises(openai.NotFoundError, match="localspec pull smollm2-360m"):
            ask("smollm2-360m")
        with pytest.raises(openai.NotFoundError, match="there is no model 'gpt-4'"):
            ask("gpt-4")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
