"""What `pull` tells and asks before it fetches: size, free disk, and whether it will fit."""

import os
import pty
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.models.gguf_builder import model_file
from tests.models.loopback_hub import COMMIT, loopback_hub
from tests.models.shapes import Proportions, sparse_model
from tests.models.toy_machine import PATIENCE_S, ToyMachine

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


@dataclass(slots=True)
class Terminal:
    """A process on a terminal of its own, and what was drawn there."""

    process: "subprocess.Popen[bytes]"
    screen: int
    drawn: bytearray

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while text.encode() not in self.drawn:
            assert time.monotonic() < deadline, bytes(self.drawn)
            time.sleep(0.01)

    def type(self, text: str) -> None:
        os.write(self.screen, text.encode())

    def end(self) -> tuple[int, str]:
        """Return the exit code and stdout."""
        out, _ = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out.decode()

    @property
    def text(self) -> str:
        return self.drawn.decode()


@contextmanager
def on_a_terminal(machine: ToyMachine, *arguments: str, **variables: str) -> Iterator[Terminal]:
    screen, terminal = pty.openpty()
    process = machine.start(*arguments, terminal=terminal, variables={"TERM": "xterm", **variables})
    os.close(terminal)
    drawn = bytearray()

    def watch() -> None:
        with suppress(OSError):  # the process has closed its end
            while piece := os.read(screen, 1000):
                drawn.extend(piece)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield Terminal(process, screen, drawn)
    finally:
        process.kill()
        process.communicate()
        watcher.join()
        os.close(screen)


def test_the_plan_is_told_before_the_download_and_no_byte_is_fetched_twice(
    machine: ToyMachine,
) -> None:
    done = machine.run("pull", "toy", **SMALL)
    assert done.code == 0, done.err
    plan, fetching = done.err.splitlines()
    assert plan.startswith("localspec: toy needs RAM: ")
    assert plan.endswith(" free (context 4096 in f16)")
    assert fetching.startswith("localspec: fetching toy (4 MB) from hub")
    machine.assert_only_verified()


@pytest.mark.slow
def test_the_header_of_a_download_that_was_begun_is_not_fetched_again(machine: ToyMachine) -> None:
    machine.hub.pause_s = 0.01
    with machine.start("pull", "toy", variables=SMALL) as process:
        while machine.hub.sent_bytes < 3 << 19:
            assert process.poll() is None
            time.sleep(0.005)
        process.kill()
        process.communicate()
    machine.hub.pause_s = 0
    done = machine.run("pull", "toy", **SMALL)
    assert "toy needs RAM" in done.err
    assert machine.hub.sent_bytes < SIZE_BYTES * 1.05 + (1 << 20) + (1 << 18)  # once


def test_where_no_header_can_be_read_the_plan_is_told_when_the_file_is_here(
    machine: ToyMachine, tmp_path: Path
) -> None:
    machine.hub.status = 500
    (tmp_path / "stick").mkdir()
    (tmp_path / "stick" / "toy.gguf").write_bytes(machine.models["toy"])
    done = machine.run("pull", "toy", LOCALSPEC_MIRRORS=str(tmp_path / "stick"), **SMALL)
    assert done.code == 0, done.err
    assert done.err.splitlines()[-1].startswith("localspec: toy needs RAM: ")


def test_what_is_here_is_planned_without_a_network(machine: ToyMachine) -> None:
    machine.run("pull", "--quiet", "toy")
    done = machine.run("pull", "--offline", "toy", LOCALSPEC_CTX="512")
    assert done.err.endswith("(context 512 in f16)\n")
    assert done.err.count("\n") == 1


def test_nothing_is_forecast_of_workers_whose_devices_nobody_knows_here(
    machine: ToyMachine,
) -> None:
    placed = {"LOCALSPEC_WORKERS": "127.0.0.1:9", "LOCALSPEC_DEVICE": "RPC0"}
    done = machine.run("pull", "toy", **placed, **SMALL)
    assert done.code == 0, done.err
    assert "needs" not in done.err
    told, *rest = done.err.splitlines()
    assert told == (
        "localspec: what fits is not known now: 127.0.0.1:9 will say what is free at loading"
    )
    assert rest[0].startswith("localspec: fetching toy (4 MB) from hub")
    assert Path(done.out.strip()).read_bytes() == machine.models["toy"]


def test_each_of_several_workers_is_named(machine: ToyMachine) -> None:
    machine.offer("small", machine.models["toy"])
    placed = {"LOCALSPEC_WORKERS": "127.0.0.1:9,127.0.0.1:8", "LOCALSPEC_DEVICE": "RPC0"}
    done = machine.run("pull", "toy", "small", **placed, **SMALL)
    assert done.err.splitlines()[0] == (
        "localspec: what fits is not known now: "
        "127.0.0.1:9, 127.0.0.1:8 will say what is free at loading"
    )


def test_the_draft_models_own_device_is_planned_with(machine: ToyMachine) -> None:
    machine.offer("small", machine.models["toy"])
    machine.pairs = '[pairs.both]\ntarget = "toy"\ndraft_model = "small"\n'
    done = machine.run("pull", "both", "--with-draft", LOCALSPEC_DRAFT_DEVICE="NPU7", **SMALL)
    assert done.code == 2
    assert "there is no device 'NPU7' here" in done.err


def test_what_will_not_fit_is_a_warning_where_nobody_can_be_asked(machine: ToyMachine) -> None:
    done = machine.run("pull", "toy", LOCALSPEC_CTX=HUGE_CTX, **LARGE)
    assert done.code == 0
    assert "localspec: warning: toy does not fit, even at a context of 16777216" in done.err
    assert "fetch it" not in done.err
    assert Path(done.out.strip()).read_bytes() == machine.models["toy"]


def test_a_pair_that_cannot_draft_is_told_before_it_is_fetched(machine: ToyMachine) -> None:
    for name, tokens in (("large", "abcdef"), ("small", "abcdxf")):
        machine.offer(name, model_file(tokens=list(tokens), merges=None))
    machine.pairs = '[pairs.odd]\ntarget = "large"\ndraft_model = "small"\n'
    with on_a_terminal(machine, "pull", "odd", "--with-draft", **SMALL) as terminal:
        terminal.wait_for("download it anyway? [y/N]:")
        terminal.type("\n")
        assert terminal.end() == (130, "")
    assert "warning: token 4 is 'e' in large and 'x' in small" in terminal.text
    assert machine.blobs == machine.partials == []


@pytest.mark.first(1)
@pytest.mark.parametrize("answer", ["n\n", "\x04"])
def test_on_a_terminal_a_no_fetches_nothing_but_a_header(machine: ToyMachine, answer: str) -> None:
    with on_a_terminal(machine, "pull", "toy", **LARGE) as terminal:
        terminal.wait_for("[Y/n]:")
        terminal.type(answer)
        assert terminal.end() == (130, "")
    assert "localspec: 4 MB to download, " in terminal.text
    assert " free on the disk: download it? [Y/n]:" in terminal.text
    assert machine.blobs == machine.partials == []
    assert machine.hub.sent_bytes <= 1 << 20
    assert not (machine.data / "pins.toml").exists()


@pytest.mark.first(1)
@pytest.mark.parametrize(
    ("flags", "variables", "asked"),
    [
        ((), LARGE, True),
        ((), SMALL, False),
        (("--yes",), LARGE, False),
        (("--quiet",), LARGE, False),
    ],
)
def test_a_large_download_is_asked_about_unless_told_otherwise(
    machine: ToyMachine, flags: tuple[str, ...], variables: dict[str, str], asked: bool
) -> None:
    with on_a_terminal(machine, "pull", *flags, "toy", **variables) as terminal:
        if asked:
            terminal.wait_for("[Y/n]:")
            terminal.type("\n")
        code, out = terminal.end()
    assert code == 0, terminal.text
    assert Path(out.strip()).read_bytes() == machine.models["toy"]
    assert ("[Y/n]" in terminal.text) == asked
    if flags == ("--quiet",):
        assert terminal.text == ""
    else:
        assert "toy needs RAM" in terminal.text
        assert "4 MB to download, " in terminal.text


def test_what_is_here_is_not_asked_about(machine: ToyMachine) -> None:
    machine.run("pull", "--quiet", "toy")
    with on_a_terminal(machine, "pull", "toy", **LARGE) as terminal:
        assert terminal.end()[0] == 0
    assert "to fetch" not in terminal.text


def test_a_split_model_is_planned_from_all_its_headers(machine: ToyMachine) -> None:
    small = machine.models["toy"]
    for number in (1, 2):
        path = f"/else/toy-GGUF/resolve/{COMMIT}/toy-Q4_K_M-{number:05}-of-00002.gguf"
        machine.hub.files[path] = small + bytes(number)
    done = machine.run("pull", "else/toy-GGUF", **SMALL)
    assert done.code == 0, done.err
    assert done.err.startswith("localspec: else/toy-GGUF ")
    headers = machine.hub.sent_bytes - (2 * len(small) + 3)
    assert 0 < headers < 3 << 20


def test_a_file_that_is_no_model_is_fetched_and_warned_of(machine: ToyMachine) -> None:
    machine.offer("text", b"no model at all" * 1000)
    done = machine.run("pull", "text", **SMALL)
    assert done.code == 0
    assert "localspec: warning: text is not a GGUF file" in done.err


@pytest.mark.slow
@pytest.mark.weights
def test_run_takes_a_model_on_the_hub_and_needs_the_hub_only_once(
    machine: ToyMachine, smollm2_path: Path
) -> None:
    machine.hub.files[f"/else/smol-GGUF/resolve/{COMMIT}/smol.Q4_1.gguf"] = (
        smollm2_path.read_bytes()
    )
    flags = ("--draft", "off", "--threads", "1", "--gpu-layers", "0", "--temperature", "0")
    arguments = ("run", *flags, "--quiet", "--max-tokens", "8", "--target")
    first = machine.run(*arguments, "hf.co/else/smol-GGUF:q4_1", "Why is the sky blue?")
    assert first.code == 0, first.err
    assert len(first.out) > 8
    machine.hub.portal = True
    again = machine.run(*arguments, "else/smol-GGUF:Q4_1", "Why is the sky blue?")
    assert (again.code, again.out) == (0, first.out), again.err
