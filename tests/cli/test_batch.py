"""`localspec batch` as its users have it: files, pipes, signals, codes, and several lines at a time."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from localspec.batch.output import open_output
from localspec.cli.batch import BatchRun
from localspec.messages import MediaPart
from localspec.telemetry.log import read_records
from localspec.telemetry.report import make_report
from tests.cli.command import PLAIN, Done, Started, assert_one_complaint, localspec, started
from tests.support.media import picture_file
from tests.waiting import PATIENCE_S, until

FEW = (*PLAIN, "--draft", "off", "--max-tokens", "4")
OUT = ("in.jsonl", "-o", "out.jsonl")
pytestmark = [pytest.mark.usefixtures("smollm2_path", "folder")]
SCORE = {
    "type": "object",
    "properties": {
        "fruit": {"enum": ["fig", "pear"]},
        "score": {"type": "integer", "minimum": 0, "maximum": 9},
    },
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


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def batch(*arguments: str, stdin: bytes = b"", shell: tuple[str, ...] = ()) -> Done:
    return localspec("batch", *FEW, *arguments, stdin=stdin, shell=shell)


def read(path: str = "out.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def has_lines(path: Path, count: int) -> bool:
    return path.exists() and path.read_bytes().count(b"\n") >= count


def write(*lines: object) -> None:
    Path("in.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def test_lines_in_every_form_are_answered_with_figures_and_receipt() -> None:
    write(
        {"id": "a", "prompt": "Say hello."},
        {"custom_id": "b", "body": {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}},
        {"messages": [{"role": "user", "content": "Hi"}], "seed": 5, "max_tokens": 2},
        {"prompt": "word " * 5000},
    )
    with Path("in.jsonl").open("ab") as file:
        file.write(b"caf\xe9\n" + b'{"prompt": "' + b"x" * (10 << 20) + b'"}\n')
    done = batch(*OUT, "--seed", "3")
    assert (done.code, done.out) == (5, "")
    assert "3 answered · 3 failed · " in done.err
    assert "no model chosen: using smollm2-135m" in done.err
    records = read()
    assert [each["line"] for each in records] == [1, 2, 3, 4, 5, 6]
    assert [each["id"] for each in records] == ["a", "b", None, None, None, None]
    assert records[1]["model"] == {"target": "smollm2-135m", "draft_model": None, "asked": "m"}
    assert (records[2]["seed"], records[2]["usage"]["completion_tokens"]) == (5, 2)
    errors = [each["error"]["type"] for each in records[3:]]
    assert errors == ["ContextOverflow", "UsageError", "UsageError"]
    assert "more than 4 MB" in records[5]["error"]["message"]
    (receipt,) = {json.dumps(each["receipt"]): each["receipt"] for each in records}.values()
    assert receipt["seed"] == 3
    assert receipt["target"].startswith("b179c9523d0e6a0f")
    assert "llama-cpp-python" in receipt["build"]


@pytest.mark.slow
def test_a_resumed_run_takes_the_seed_from_the_receipts_and_loads_nothing_without_need() -> None:
    write({"prompt": "One"}, {"prompt": "Two"})
    assert batch(*OUT).code == 0
    before = Path("out.jsonl").read_bytes()
    seed = read()[0]["receipt"]["seed"]
    done = batch(*OUT, "--resume")
    left = "all by earlier runs: nothing was left to answer"
    assert (done.code, done.err) == (0, f"localspec: 2 answered · {left}\n")
    write({"prompt": "One"}, {"prompt": "Two"}, {"prompt": "Three"})
    assert f"localspec: seed {seed}\n" in batch(*OUT, "--resume").err
    assert Path("out.jsonl").read_bytes().startswith(before)
    assert len(read()) == 3
    refused = batch(*OUT, "--resume", "--seed", str(seed + 1), "--top-k", "3")
    assert_one_complaint(refused, 2, "another seed and other options")


@pytest.mark.slow
def test_a_line_redone_alone_has_the_same_answer(six_layers_path: Path) -> None:
    write({"id": "a", "prompt": "Tell me a story."}, {"id": "b", "prompt": "Tell me a story."})
    model = ("--target", str(six_layers_path))
    options = (*PLAIN, *model, "--exact", "--max-tokens", "12", "--seed", "1")
    both = localspec("batch", *options, *OUT)
    write({"id": "b", "prompt": "Tell me a story."})
    alone = localspec("batch", *options, "in.jsonl", "--draft", "lookup")
    assert (both.code, alone.code) == (0, 0)
    first, second = read()
    assert first["text"] != second["text"]
    assert json.loads(alone.out)["text"] == second["text"]


@pytest.mark.slow
def test_csv_and_templates_go_through_pipes() -> None:
    Path("t.txt").write_text("Translate {{ word }} into {{ language }}.\n")
    table = (
        b"id,word,language,seed,reply_options\n"
        b'1,"tree, big",French,apple,"{""max_tokens"": 2}"\n2,sea,German,,\n3,sun,,,\n'
    )
    done = batch("-", "--template", "t.txt", "--format", "csv", "--quiet", stdin=table)
    assert (done.code, done.err) == (0, "")
    records = [json.loads(line) for line in done.out.splitlines()]
    assert [(each["line"], each["id"]) for each in records] == [(2, "1"), (3, "2"), (4, "3")]
    assert [each["usage"]["completion_tokens"] for each in records[:2]] == [2, 4]


@pytest.mark.slow
def test_a_reader_who_leaves_ends_it_quietly() -> None:
    write(*({"prompt": f"Count to {number}."} for number in range(50)))
    with started("batch", *FEW, "-m", "smollm2-135m", "in.jsonl") as process:
        assert process.stdout.readline().startswith(b'{"line": 1, ')
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 141
        assert process.stderr.read().count(b"\n") == 1  # the seed


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopped_it_leaves_whole_records_to_resume(number: signal.Signals, code: int) -> None:
    write(*({"prompt": "Tell me a long story.", "max_tokens": 60} for _ in range(4)))
    out, words = Path("out.jsonl"), ("batch", *PLAIN, "--draft", "off", *OUT, "--resume")
    with started(*words) as process:
        assert until(lambda: out.exists() and out.stat().st_size > 0)
        process.send_signal(number)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code
    assert err.decode().splitlines()[-1].endswith("use --resume to continue out.jsonl")
    assert b"Traceback" not in err
    assert 0 < len(read()) < 4
    assert localspec(*words).code == 0
    assert [each["line"] for each in read()] == [1, 2, 3, 4]


def test_stopped_before_the_first_record_it_names_no_file_that_will_be_gone(tmp_path: Path) -> None:
    run, output = object.__new__(BatchRun), open_output(str(tmp_path / "out.jsonl"), resume=False)
    run._output = output
    assert run._again == "nothing was answered yet, give the same command again"
    output.append(1, b"{}\n")
    assert run._again == f"use --resume to continue {output.name}"
    output.close()


@contextmanager
def fed(*words: str) -> Iterator[Started]:
    """Start a batch that reads a pipe, which is written to."""
    with Started("batch", "-", *words) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_a_pipe_that_brings_nothing_can_be_left_by_ctrl_c() -> None:
    with fed(*FEW) as process:
        process.stdin.write(b'{"prompt": "Hi"}\n')
        process.stdin.flush()
        assert process.stdout.readline().startswith(b'{"line": 1')
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130


@pytest.mark.slow
def test_a_line_is_answered_before_the_next_one_is_complete() -> None:
    output, few = Path("out.jsonl"), ("--ctx", "256", "--max-tokens", "4", "--parallel", "2")
    with fed("-o", str(output), *PLAIN, *few) as process:
        for count in (1, 2):
            process.stdin.write(b'{"prompt": "Say hello."}\n{"prompt": ')
            process.stdin.flush()
            assert until(partial(has_lines, output, count)), "it waits for what was begun"
            process.stdin.write(b"5}\n")
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 5
    assert [each["line"] for each in read()] == [1, 2, 3, 4]


@pytest.mark.slow
def test_killed_at_random_moments_it_ends_as_if_nothing_had_happened(
    six_layers_path: Path,
) -> None:
    ids, chance, output = [f"line-{n}" for n in range(16)], Random(3), Path("out.jsonl")
    write(*({"id": i, "prompt": f"A story about {i}.", "temperature": 0.8 * (n % 2)} for n, i in enumerate(ids)))  # fmt: skip
    how = f"--target {six_layers_path} --quiet --exact --draft lookup --seed 1 --max-tokens 6"
    options = (*PLAIN, *how.split())
    assert localspec("batch", "in.jsonl", "-o", "whole.jsonl", *options, timeout_s=600).code == 0
    for wanted in (chance.randint(0, 3), chance.randint(4, 8), chance.randint(9, 14)):
        with started("batch", *OUT, "--resume", *options) as process:
            assert until(partial(has_lines, output, wanted))
            assert process.poll() is None, "killed while it runs"
        if chance.random() < 0.7 and output.exists():  # as a power cut may tear the last record
            os.truncate(output, max(0, output.stat().st_size - chance.randint(2, 40)))
    assert localspec("batch", *OUT, "--resume", *options).code == 0
    found, whole = (
        [{name: each[name] for name in each if name not in {"timings", "speculation"}} for each in read(path)]
        for path in ("out.jsonl", "whole.jsonl")
    )  # fmt: skip
    assert [each["id"] for each in found] == ids
    assert found == whole


def answers_of(*arguments: str) -> dict[str, Any]:
    """Run LINES; return the answer of each line, and why it ended."""
    write(*LINES)
    Path("out.jsonl").unlink(missing_ok=True)
    options = ("--ctx", "256", "--seed", "5", "--max-tokens", "16")
    done = localspec("batch", *PLAIN, *options, *arguments, *OUT)
    assert done.code == 5, done.err  # one line does not fit into the context
    records = read()
    assert [record["id"] for record in records] == [line["id"] for line in LINES]
    fields = ("text", "stop_reason", "seed", "usage", "error")
    return {record["id"]: {name: record.get(name) for name in fields} for record in records}


@pytest.mark.slow
def test_pictures_are_answered_and_resumed(
    seeing_models: Callable[[str], tuple[Path, Path]],
) -> None:
    target, encoder = seeing_models("tiles")
    Path("b.png").write_bytes(picture_file(9))
    text = {"type": "text", "text": "What is this?"}

    def line(*urls: str) -> dict[str, Any]:
        parts = [{"type": "image_url", "image_url": {"url": each}} for each in urls]
        return {"messages": [{"role": "user", "content": [*parts, text]}]}

    model = ("--target", str(target), "--own", "--temperature", "0")
    tiles = (*model, "--mmproj", str(encoder))
    first = MediaPart.of(picture_file(4), "a.png").data_url
    write({"prompt": "Hi"}, line(first), line("b.png"), line("../no.png"), line("b.png", first))
    assert batch("in.jsonl", "-o", "whole.jsonl", *tiles, "--seed", "1").code == 5
    with started("batch", *FEW, *OUT, *tiles, "--seed", "1") as process:
        assert until(lambda: Path("out.jsonl").exists() and len(read()) > 1)
        process.kill()
    done = batch(*OUT, "--resume", *tiles)
    assert (done.code, "1 failed" in done.err) == (5, True)
    texts = [[each.get("text") for each in read(name)] for name in ("out.jsonl", "whole.jsonl")]
    assert texts[0] == texts[1]
    assert len({*texts[0]}) >= 4, "what is seen changes the text"
    for mmproj in (str(seeing_models("plain")[1]), "off"):
        refused = batch(*OUT, "--resume", *model, "--mmproj", mmproj)
        assert_one_complaint(refused, 2, "other options")
    done = batch("in.jsonl", *model, "--mmproj", "off")
    assert ["error" in json.loads(each) for each in done.out.splitlines()] == [False, *[True] * 4]


@pytest.mark.slow
def test_several_at_a_time_give_the_same_bytes_under_exact(six_layers_path: Path) -> None:
    exact = ("--exact", "--target", str(six_layers_path))
    alone = answers_of(*exact)
    assert answers_of(*exact, "--parallel", "3") == alone
    assert json.loads(alone["schema"]["text"])["fruit"] in {"fig", "pear"}
    assert "--ctx" in str(alone["long"]["error"])
    auto = answers_of("--parallel", "auto")
    assert all(each["text"] for name, each in auto.items() if name not in {"long", "stop"})


@pytest.mark.slow
def test_several_recorded(
    folder: Path, monkeypatch: pytest.MonkeyPatch, smollm2_path: Path
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(folder))
    monkeypatch.setenv("LOCALSPEC_TELEMETRY", "on")
    start = time.perf_counter()
    answers_of("--parallel", "2", "--target", str(smollm2_path))
    wall_s = time.perf_counter() - start
    records = read_records(folder / "telemetry")
    replies, report = records.replies.values(), make_report(records)
    assert len(replies) == len(LINES) - 1  # one line does not fit into the context
    assert {reply.pair.name for reply in replies} == {f"{smollm2_path.name}, 2 at a time"}
    assert report.total.rounds > 20
    # Shares of passes add up to passes, and no gain of drafting is claimed.
    assert 0 < report.total.seconds < wall_s
    assert report.total.speed_up is None
    assert not report.total.gains
