"""`localspec worker` and `--workers`: another process computes; what goes wrong with it is one line that names it."""

import ast
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from localspec.batch.batch import Tally
from localspec.cli.batch import BatchRun
from localspec.cli.main import localspec as cli
from localspec.engine.engine import Engine
from localspec.plan.load_plan import LoadPlan
from tests.cli.command import assert_one_complaint, localspec, started
from tests.llama import tiny_models
from tests.plugins.workers.workers import RunningWorker, free_address, require_rpc, working
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

ASKED = ("--draft", "off", "--ctx", "512", "--temperature", "0", "--exact", "--threads", "1")
STORY = ("--raw", "Once upon a time")
# What llama.cpp says of where the layers are, on one line each.
_PLACED = """
import sys
from pathlib import Path
from localspec.llama.backend import log_lines
from localspec.llama.devices import devices
from localspec.llama.model import LlamaModel
from localspec.plugins.workers.rpc import use_workers
from localspec.options import LoadOptions
use_workers(sys.argv[2:])
print(*((each.free_bytes, each.total_bytes) for each in devices() if each.backend == "RPC"), sep="\\n")
LlamaModel(Path(sys.argv[1]), LoadOptions(n_ctx=256))
print(*log_lines(), sep="\\n")
"""


@pytest.fixture(scope="module")
def address() -> str:
    """Where one worker after another is, so that what is measured of one is known of the next."""
    return free_address()


@pytest.fixture
def worker(address: str) -> Iterator[RunningWorker]:
    with working(at=address) as found:
        yield found


def placed(path: Path, *addresses: str) -> str:
    program = [sys.executable, "-c", _PLACED, str(path), *addresses]
    return subprocess.run(program, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def exact(six_layers_path: Path) -> tuple[str, ...]:
    """Flags of an exact answer."""
    return ("--target", str(six_layers_path), *ASKED)


def text(exact: tuple[str, ...], *words: str, count: int = 24) -> str:
    done = localspec("run", *exact, "-n", str(count), "--json", *words, *STORY)
    assert done.code == 0, done.err
    found: str = json.loads(done.out)["text"]
    return found


def test_all_layers_are_on_the_workers_which_give_the_bytes_of_this_machine(
    six_layers_path: Path, worker: RunningWorker, exact: tuple[str, ...]
) -> None:
    here = text(exact, "--device", "CPU")
    with working() as another:
        for addresses in ([worker.address], [worker.address, another.address]):
            out = placed(six_layers_path, *addresses)
            assert "offloaded 7/7 layers to GPU" in out
            assert all(f"[{each}] model buffer size" in out for each in addresses)
            free, total = ast.literal_eval(out.splitlines()[0])
            assert free == int(0.75 * total) > 0, "a quarter of a worker's RAM is its own"
            assert text(exact, "--workers", ",".join(addresses)) == here


@pytest.mark.first(1)
@pytest.mark.parametrize("after_bytes", [40, 1, 103])
def test_a_worker_that_dies_ends_the_answer_with_what_was_confirmed(
    after_bytes: int, address: str, exact: tuple[str, ...]
) -> None:
    with (
        working(at=address) as dying,
        started("run", *exact, "--workers", dying.address, "-n", "400", *STORY) as process,
    ):
        begun = process.stdout.read(after_bytes)
        dying.kill()
        # Not by `communicate`: it knows nothing of what was read ahead with the beginning.
        out, err = process.stdout.read(), process.stderr.read()
        assert process.wait(PATIENCE_S) == 1
    *_, last = err.decode().splitlines()
    assert last.startswith(f"localspec: worker {dying.address} is gone")
    assert "Traceback" not in err.decode()
    answer, alone = (begun + out).decode(), text(exact, "--device", "CPU", count=64)
    assert answer.endswith("\n")
    assert answer[:-1][: len(alone)] == alone[: len(answer) - 1]


def test_a_batch_whose_worker_died_goes_on_where_it_stopped(
    tmp_path: Path, address: str, exact: tuple[str, ...]
) -> None:
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(f'{{"prompt": "Number {n} is"}}\n' for n in range(12)))
    options = ("batch", str(source), "-o", str(output), *exact, "--raw", "-n", "24", "--seed", "1")
    with working(at=address) as dying, started(*options, "--workers", dying.address) as process:
        while not (output.exists() and output.read_bytes().count(b"\n") >= 2):
            assert process.poll() is None
        dying.kill()
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert f"worker {dying.address} is gone" in err.decode()
    assert f"use --resume to continue {output}" in err.decode()
    with working(at=address) as fresh:
        resumed = localspec(*options, "--resume", "--workers", fresh.address)
    assert resumed.code == 0, resumed.err
    alone = (each if each != str(output) else "-" for each in options)
    whole = localspec(*alone, "--device", "CPU").out
    answers = [
        [json.loads(line)["text"] for line in found.splitlines()]
        for found in (output.read_text(), whole)
    ]
    assert answers[0] == answers[1]
    assert len(answers[0]) == 12


def test_a_taken_port_is_refused_and_an_allowed_address_warned_about(worker: RunningWorker) -> None:
    done = localspec("worker", "--listen", worker.address)
    assert_one_complaint(done, 2, f"cannot listen on {worker.address}: Address already in use")
    require_rpc()
    with started("worker", "--listen", "0.0.0.0:0", "--allow") as process:
        told = [process.stderr.readline().decode() for _ in range(2)]
    assert "at 0.0.0.0:" in told[0]
    assert "can use, crash and eavesdrop" in told[1]


def test_a_worker_stops_cleanly() -> None:
    for number in [signal.SIGINT, signal.SIGTERM]:
        with working() as found:
            found.process.send_signal(number)
            assert found.process.wait(PATIENCE_S) == 0
            out, err = found.process.communicate()
        assert out == b""
        # Perhaps the signal came before it was told how to reach it.
        assert err == b"" or err.startswith(b"localspec: on the other machine: ssh -N -L ")
        assert err.count(b"\n") <= 1


@pytest.mark.parametrize(
    "placement",
    [
        ["--draft-device", "RPC0"],
        ["--tensor-split", "1,1"],
        ["--device", "RPC0,RPC1", "--split", "tensor"],
    ],
)
def test_a_batch_leaves_it_to_its_engine_what_the_workers_devices_are(
    placement: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, draft_model = (
        str(tiny_models.write_llama(tmp_path / f"{name}.gguf", 0.01)) for name in ("large", "small")
    )
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    planned: list[tuple[LoadPlan | None, str]] = []

    def answered(run: BatchRun, _: object, engine: Engine) -> Tally:
        asked = run._load.options
        planned.append((engine.plan, ",".join(asked.load.devices + asked.draft_devices)))
        return Tally()

    monkeypatch.setattr(BatchRun, "_answer", answered)
    models = ["--target", target, "--draft-model", draft_model]
    lines = tmp_path / "in.jsonl"
    lines.write_text('{"prompt": "One"}\n')
    output = ["-o", str(tmp_path / "out.jsonl")]
    words = ["batch", str(lines), *output, *models, "--workers", free_address(), *placement]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    ((plan, devices),) = planned
    assert plan is not None
    assert plan.options.devices == ()
    assert plan.options.shares == ()
    assert ("RPC0" in devices) is ("RPC0" in " ".join(placement)), "the engine is told all"
