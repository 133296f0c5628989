"""On real weights, over a real port: conversations in turns evaluate what is new, and so do those after a restart."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.command import PLAIN, started
from tests.serve.test_verb import url_of
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.weights]

TALKS = [
    f"You are guide number {n} of a museum of clocks. Answer in one sentence. " * 16
    for n in "12345"
]


@contextmanager
def serving(model: Path, data: Path, *more: str) -> Iterator[httpx.Client]:
    """Serve a model from a data directory of its own, and stop as a user does."""
    words = (
        "serve",
        str(model),
        "--draft",
        "off",
        "--port",
        "0",
        "--parallel",
        "3",
        "--ctx",
        "1024",
    )
    with started(*words, *more, *PLAIN, env={"LOCALSPEC_DATA_DIR": str(data)}) as process:
        with httpx.Client(base_url=url_of(process), timeout=300) as client:
            yield client
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0


def evaluated(client: httpx.Client, talk: list[dict[str, str]]) -> int:
    """Take a turn in a conversation; return how many tokens of its prompt were evaluated."""
    body: dict[str, Any] = {"messages": talk, "max_tokens": 12, "temperature": 0.8, "seed": 1}
    answer = client.post("/v1/chat/completions", json=body).json()
    talk.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
    talk.append({"role": "user", "content": "And then?"})
    usage = answer["usage"]
    cached: int = usage["prompt_tokens_details"]["cached_tokens"]
    return int(usage["prompt_tokens"]) - cached


def test_conversations_in_turns_evaluate_what_is_new_also_after_a_restart(
    smollm2_path: Path, tmp_path: Path
) -> None:
    talks = [
        [{"role": "system", "content": each}, {"role": "user", "content": "What is the oldest?"}]
        for each in TALKS
    ]
    with serving(smollm2_path, tmp_path) as client:
        first = [evaluated(client, talk) for talk in talks]
        assert min(first) > 200
        # There are three sequences for five conversations: what one loses is on the disk, but for less than
        # 64 tokens, which are not worth a file.
        for _ in range(2):
            assert max(evaluated(client, talk) for talk in talks) < 88
        assert "localspec_pass_tokens_count" in client.get("/metrics").text
    assert len(list((tmp_path / "prefixes").rglob("target.kv"))) == 5
    with serving(smollm2_path, tmp_path) as client:
        assert max(evaluated(client, talk) for talk in reversed(talks)) < 88
    with serving(smollm2_path, tmp_path / "empty", "--forget") as client:
        assert evaluated(client, talks[0]) > 200
    assert not (tmp_path / "empty" / "prefixes").exists()
