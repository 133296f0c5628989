"""`localspec batch --parallel`: the same answers, several at a time."""

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from localspec.telemetry.log import read_records
from localspec.telemetry.report import make_report
from tests.cli.command import COMMAND, PLAIN, environment, localspec
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

SCORE = {
    "type": "object",
    "properties": {"fruit": {"enum": ["fig", "pear"]}, "score": {"type": "integer", "maximum": 9}},
    "required": ["fruit", "score"],
}
LINES: list[dict[str, Any]] = [
    {"id": "rivers", "prompt": "Name three rivers."},
    {"id": "list", "prompt": "Repeat this: pear, apple, fig, pear, apple, fig.", "max_tokens": 12},
    {"id": "long", "prompt": "word " * 600},
    {"id": "stop", "prompt": "Count from one to ten.", "stop": ["five"]},
    {"id": "hello", "prompt": "Say hello.", "temperature": 0},
    {"id": "schema", "prompt": "Rate pears.", "json_schema": SCORE, "max_tokens": 40},
    {"id": "greedy", "prompt": "Rate figs.", "json_schema": SCORE, "temperature": 0},
]


def answers(*arguments: str) -> dict[str, Any]:
    """Run the batch; return what was said on each line, and why it ended."""
    Path("in.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in LINES))
    Path("out.jsonl").unlink(missing_ok=True)
    done = localspec(
        "batch", *PLAIN, "--ctx", "256", "--seed", "5", "--max-tokens", "16", *arguments,
        "in.jsonl", "-o", "out.jsonl",
    )  # fmt: skip
    assert done.code == 5, done.err  # one line does not fit into the context
    records = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert [record["id"] for record in records] == [line["id"] for line in LINES]
    fields = ("text", "stop_reason", "seed", "usage", "error")
    return {record["id"]: {name: record.get(name) for name in fields} for record in records}


@pytest.mark.parametrize("value", ["0", "65", "-1", "many", "1.5"])
def test_a_count_that_cannot_be_is_one_line(value: str) -> None:
    done = localspec("batch", "in.jsonl", "--parallel", value)
    assert done.code == 2
    assert "--parallel" in done.err
    assert "Traceback" not in done.err


@pytest.mark.weights
def test_under_exact_the_answers_are_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    alone = answers("--exact")
    assert answers("--exact", "--parallel", "3") == alone
    assert json.loads(alone["schema"]["text"])["fruit"] in {"fig", "pear"}
    assert "--ctx" in str(alone["long"]["error"])


@pytest.mark.weights
def test_auto_answers_every_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = answers("--parallel", "auto")
    assert all(each["text"] for name, each in said.items() if name not in {"long", "stop"})
    assert said["long"]["error"]


@pytest.mark.weights
def test_a_line_is_answered_while_the_next_one_has_not_come(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    output = tmp_path / "out.jsonl"
    few = ("--ctx", "256", "--max-tokens", "4", "--parallel", "2")
    process = subprocess.Popen(
        [*COMMAND, "batch", "-", "-o", str(output), *PLAIN, *few],
        stdin=reader,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    os.close(reader)
    try:
        with os.fdopen(writer, "wb", buffering=0) as slow:
            for count in (1, 2):
                slow.write(b'{"prompt": "Say hello."}\n{"prompt": ')
                deadline = time.monotonic() + PATIENCE_S
                while not output.exists() or output.read_bytes().count(b"\n") < count:
                    assert time.monotonic() < deadline, "it waits for the line that was begun"
                    time.sleep(0.02)
                slow.write(b"5}\n")
        _, said = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 5, said.decode()
    assert [json.loads(each)["line"] for each in output.read_text().splitlines()] == [1, 2, 3, 4]


@pytest.mark.weights
def test_lines_that_are_answered_at_once_are_recorded_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, smollm2_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("LOCALSPEC_TELEMETRY", "on")
    start = time.perf_counter()
    answers("--parallel", "2", "--target", str(smollm2_path))
    wall_s = time.perf_counter() - start
    records = read_records(tmp_path / "telemetry")
    replies, report = records.replies.values(), make_report(records)
    assert len(replies) == len(LINES) - 1  # one line does not fit into the context
    assert {reply.pair.name for reply in replies} == {f"{smollm2_path.name}, 2 at a time"}
    assert report.total.rounds > 20
    # Shares of passes add up to passes, and nothing is said of what drafting gained.
    assert 0 < report.total.seconds < wall_s
    assert report.total.speed_up is None
    assert report.plain == {}
