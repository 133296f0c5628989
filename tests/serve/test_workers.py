"""A server whose models are on a worker: the worker dies in the middle of an answer, and comes back."""

import json
import time
from collections.abc import Callable

import httpx
import pytest

from tests.cli.command import started
from tests.serve.test_verb import url_of
from tests.waiting import PATIENCE_S
from tests.workers import free_address, working

BODY = {"messages": [{"role": "user", "content": "Tell a long story about a river."}]}
FLAGS = ("--draft", "off", "--ctx", "512", "--port", "0", "--parallel", "1", "--threads", "1")


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.usefixtures("smollm2_path")
def test_a_server_names_the_worker_that_died_and_answers_when_it_is_back() -> None:
    address = free_address()
    serve = ("serve", "smollm2-135m", *FLAGS, "--workers", address)
    with working(at=address) as worker, started(*serve) as process:
        url = f"{url_of(process)}/v1/chat/completions"
        with httpx.stream("POST", url, json={**BODY, "stream": True}, timeout=PATIENCE_S) as answer:
            told = [line for line in answer.iter_lines() if _noted(line, worker.kill)]
        texts = [json.loads(line.removeprefix("data: ")) for line in told if "{" in line]
        assert any(each.get("choices") for each in texts)
        assert f"worker {address} is gone" in json.dumps(texts[-1])
        refused = httpx.post(url, json=BODY, timeout=PATIENCE_S)
        assert refused.status_code >= 500
        assert f"worker {address}" in refused.text
        with working(at=address):
            for _ in range(120):
                again = httpx.post(url, json={**BODY, "max_tokens": 4}, timeout=PATIENCE_S)
                if again.status_code == 200:
                    break
                time.sleep(1)
            assert again.status_code == 200, again.text


def _noted(line: str, kill: Callable[[], None]) -> bool:
    """Kill the worker at the first text."""
    if '"content"' in line:
        kill()
    return bool(line)
