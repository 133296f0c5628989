"""`localspec batch` as its users have it: files, pipes, signals, codes."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.kills.batch import answers, kill_until_done, write_prompts
from tests.cli.command import (
    COMMAND,
    PLAIN,
    Done,
    assert_one_complaint,
    environment,
    localspec,
    started,
)
from tests.waiting import PATIENCE_S, until

FEW = (*PLAIN, "--draft", "off", "--max-tokens", "4")
weights = pytest.mark.weights


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def batch(*arguments: str, stdin: bytes = b"", shell: tuple[str, ...] = ()) -> Done:
    return localspec("batch", *FEW, *arguments, stdin=stdin, shell=shell)


def read(path: str = "out.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def write(*lines: object, to: str = "in.jsonl") -> None:
    Path(to).write_text("".join(f"{json.dumps(line)}\n" for line in lines))


@pytest.mark.first(5)
@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["none.jsonl"], 2, "none.jsonl cannot be read (No such file or directory)"),
        (["."], 2, ". is a directory"),
        (["in.jsonl", "-o", "there.jsonl"], 2, "there.jsonl exists; use --resume"),
        (["in.jsonl", "-o", "no/out.jsonl"], 1, "no/out.jsonl cannot be written"),
        (["in.jsonl", "--resume"], 2, "stdout cannot be resumed"),
        (["in.jsonl", "-o", "in.jsonl", "--resume"], 2, "in.jsonl is input and output"),
        (["in.jsonl", "-o", "there.jsonl", "--resume"], 2, "is not an output of batch"),
        (["in.jsonl", "-o", "out.csv", "--resume"], 2, "answers are JSON lines: give out.jsonl"),
        (["in.jsonl", "--template", "none"], 2, "none cannot be read"),
        (["in.jsonl", "--template", "broken"], 1, "broken:1: is not a Jinja template"),
        (["in.jsonl", "--template", "t", "--field", "f"], 2, "cannot be combined"),
        (["in.jsonl", "--raw", "--system", "x"], 2, "--raw and --system cannot"),
        (["in.jsonl", "--temperature", "-1"], 2, "temperature is -1.0"),
        (["in.jsonl", "--format", "xml"], 2, "'xml' is not one of"),
        ([], 2, "Missing argument 'SOURCE'"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line_before_anything_is_written(
    folder: Path, arguments: list[str], code: int, complaint: str
) -> None:
    write({"prompt": "Hi"})
    Path("there.jsonl").write_text("mine\n")
    Path("broken").write_text("{{")
    Path("t").write_text("{{ prompt }}")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    done = localspec("batch", *arguments)
    assert_one_complaint(done, code)
    assert complaint in done.err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@weights
@pytest.mark.usefixtures("smollm2_path", "folder")
def test_lines_in_every_form_are_answered_with_figures_and_receipt() -> None:
    write(
        {"id": "a", "prompt": "Say hello."},
        {"custom_id": "b", "body": {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}},
        {"messages": [{"role": "user", "content": "Hi"}], "seed": 5, "max_tokens": 2},
        {"prompt": "word " * 5000},
    )
    with Path("in.jsonl").open("ab") as file:
        file.write(b"caf\xe9\n" + b'{"prompt": "' + b"x" * (10 << 20) + b'"}\n')
    done = batch("in.jsonl", "-o", "out.jsonl", "--seed", "3")
    assert (done.code, done.out) == (5, "")
    assert "localspec: 3 answered · 3 failed · " in done.err
    records = read()
    assert [each["line"] for each in records] == [1, 2, 3, 4, 5, 6]
    assert [each["id"] for each in records] == ["a", "b", None, None, None, None]
    assert records[1]["model"] == {"target": "smollm2-135m", "draft_model": None, "asked": "m"}
    assert (records[2]["seed"], records[2]["usage"]["completion_tokens"]) == (5, 2)
    assert [each["error"]["type"] for each in records[3:]] == [
        "ContextOverflow",
        *["UsageError"] * 2,
    ]
    assert "more than 4 MB" in records[5]["error"]["message"]
    (receipt,) = {json.dumps(each["receipt"]): each["receipt"] for each in records}.values()
    assert receipt["seed"] == 3
    assert receipt["target"].startswith("b179c9523d0e6a0f")
    assert "localspec" in receipt["build"]
    assert "llama-cpp-python" in receipt["build"]


@pytest.mark.slow
@weights
@pytest.mark.usefixtures("smollm2_path", "folder")
def test_a_resumed_run_takes_the_seed_from_the_receipts_and_loads_nothing_without_need() -> None:
    write({"prompt": "One"}, {"prompt": "Two"})
    assert batch("in.jsonl", "-o", "out.jsonl").code == 0
    before = Path("out.jsonl").read_bytes()
    seed = read()[0]["receipt"]["seed"]
    done = batch("in.jsonl", "-o", "out.jsonl", "--resume")
    assert (done.code, done.err) == (0, "localspec: 2 answered\n")
    write({"prompt": "One"}, {"prompt": "Two"}, {"prompt": "Three"})
    assert f"localspec: seed {seed}\n" in batch("in.jsonl", "-o", "out.jsonl", "--resume").err
    assert Path("out.jsonl").read_bytes().startswith(before)
    assert len(read()) == 3
    refused = batch("in.jsonl", "-o", "out.jsonl", "--resume", "--seed", str(seed + 1))
    assert_one_complaint(refused, 2)
    assert "out.jsonl has answers of another seed: " in refused.err
    other = batch("in.jsonl", "-o", "out.jsonl", "--resume", "--top-k", "3")
    assert "answers of other options" in other.err


@pytest.mark.slow  # measuring which widths are exact takes half a minute of a processor
@weights
@pytest.mark.usefixtures("smollm2_path", "folder")
def test_a_line_redone_alone_gets_the_same_answer() -> None:
    write({"id": "a", "prompt": "Tell me a story."}, {"id": "b", "prompt": "Tell me a story."})
    options = (*PLAIN, "--exact", "--max-tokens", "12", "--seed", "1")
    both = localspec("batch", *options, "in.jsonl", "-o", "out.jsonl")
    write({"id": "b", "prompt": "Tell me a story."})
    alone = localspec("batch", *options, "in.jsonl", "--draft", "lookup")
    assert (both.code, alone.code) == (0, 0)
    first, second = read()
    assert first["text"] != second["text"]
    assert json.loads(alone.out)["text"] == second["text"]


@pytest.mark.slow
@weights
@pytest.mark.usefixtures("smollm2_path", "folder")
def test_csv_and_templates_go_through_pipes() -> None:
    Path("t.txt").write_text("Translate {{ word }} into {{ language }}.\n")
    table = (
        b"id,word,language,seed,reply_options\n"
        b'1,"tree, big",French,apple,"{""max_tokens"": 2}"\n2,sea,German,,\n3,sun,,,\n'
    )
    options = ("--template", "t.txt", "--format", "csv", "--quiet")
    done = batch("-", *options, stdin=table)
    assert (done.code, done.err) == (0, "")
    records = [json.loads(line) for line in done.out.splitlines()]
    assert [(each["line"], each["id"]) for each in records] == [(2, "1"), (3, "2"), (4, "3")]
    assert [each["usage"]["completion_tokens"] for each in records[:2]] == [2, 4]
    assert all(each["text"] or each["usage"]["completion_tokens"] for each in records)


@weights
@pytest.mark.usefixtures("smollm2_path", "folder")
def test_an_empty_input_is_answered_with_nothing() -> None:
    Path("in.jsonl").write_text("\n\n")
    done = batch("in.jsonl", "-o", "out.jsonl")
    assert (done.code, done.out, done.err) == (0, "", "localspec: 0 answered\n")
    assert not Path("out.jsonl").exists()


@pytest.mark.slow
@weights
@pytest.mark.usefixtures("smollm2_path", "folder")
def test_a_reader_who_leaves_ends_it_quietly() -> None:
    write(*({"prompt": f"Count to {number}."} for number in range(50)))
    with started("batch", *FEW, "in.jsonl") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b'{"line": 1, ')
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 141
        assert process.stderr.read().count(b"\n") == 1  # the seed


@pytest.mark.slow
@weights
@pytest.mark.usefixtures("smollm2_path", "folder")
@pytest.mark.parametrize("shell", ["ulimit -f 6", "exec >/dev/full"])
def test_an_output_that_is_full_is_one_line_and_code_1(shell: str) -> None:
    # Short answers: one that alone is longer than the disk would leave no record.
    write(*({"prompt": f"Count to {number}.", "max_tokens": 20} for number in range(5)))
    to = ("-o", "out.jsonl") if "ulimit" in shell else ()
    # Nothing is drafted, so that no measurement has to be kept on the small disk.
    done = batch("in.jsonl", *to, "--quiet", shell=("sh", "-c", f'{shell}; exec "$@"', "sh"))
    assert_one_complaint(done, 1)
    assert "cannot be written (" in done.err
    if to:
        assert Path("out.jsonl").exists(), done.err
        assert Path("out.jsonl").read_bytes().endswith(b"\n")
        assert 0 < len(read()) < 5
        assert batch("in.jsonl", *to, "--resume").code == 0
        assert [each["line"] for each in read()] == [1, 2, 3, 4, 5]


def stopped(number: signal.Signals, happened: Callable[[], bool]) -> tuple[int, str]:
    """Start a batch, send it a signal when something has happened, and return its code and stderr."""
    arguments = ["batch", *PLAIN, "--draft", "off", "in.jsonl", "-o", "out.jsonl", "--resume"]
    with started(*arguments) as process:
        assert until(happened)
        process.send_signal(number)
        _, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, err.decode()


@pytest.mark.slow
@weights
@pytest.mark.usefixtures("smollm2_path", "folder")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_told_to_stop_it_leaves_whole_records_and_says_how_to_go_on(
    number: signal.Signals, code: int
) -> None:
    write(*({"prompt": "Tell me a long story.", "max_tokens": 60} for _ in range(4)))
    out = Path("out.jsonl")
    ended, err = stopped(number, lambda: out.exists() and out.stat().st_size > 0)
    assert ended == code
    assert err.endswith("localspec: stopped: use --resume to continue out.jsonl\n")
    assert "Traceback" not in err
    assert 0 < len(read()) < 4
    assert (
        localspec("batch", *PLAIN, "--draft", "off", "in.jsonl", "-o", "out.jsonl", "--resume").code
        == 0
    )
    assert [each["line"] for each in read()] == [1, 2, 3, 4]


@pytest.mark.slow
@weights
@pytest.mark.usefixtures("smollm2_path", "folder")
def test_a_pipe_that_brings_nothing_can_be_left_by_ctrl_c() -> None:
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [*COMMAND, "batch", *FEW, "-"],
        stdin=reader,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    with process:
        os.close(reader)
        os.write(writer, b'{"prompt": "Hi"}\n')
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b'{"line": 1')
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_S)
        os.close(writer)
    assert process.returncode == 130
    assert b"Traceback" not in err


@pytest.mark.slow
@weights
@pytest.mark.usefixtures("smollm2_path", "folder")
def test_killed_at_random_moments_it_ends_as_if_nothing_had_happened() -> None:
    source, whole, output = Path("in.jsonl"), Path("whole.jsonl"), Path("out.jsonl")
    write_prompts(source, 16)
    options = ["--exact", "--seed", "1", "--max-tokens", "6", "--draft", "lookup"]
    assert localspec("batch", *PLAIN, str(source), "-o", str(whole), *options).code == 0
    arguments = [str(source), "-o", str(output), "--resume", *options]
    assert kill_until_done(arguments, output, 3, 16).kills > 0
    assert [each["id"] for each in answers(output)] == [f"line-{number}" for number in range(16)]
    assert answers(output) == answers(whole)
