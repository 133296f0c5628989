"""Ground: a user with folders of their own and SmolLM2 in the store, and the command as they run it."""

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import IO, Any

from lab.faults.limits import NONE, Limits
from tests.cli.command import COMMAND, PLAIN

ROOT = Path(__file__).parents[2]
CLOCK = Path(__file__).with_name("clock")
_POLL_S = 0.02
PATIENCE = 10_000
"""Looks at something that is to happen; counted, not timed: a machine that is paused must not use the patience up."""

ANSWER = (*PLAIN, "--temperature", "0", "--ctx", "512", "--draft", "lookup")
"""A short context and no measuring: trials are many."""
SHORT_CHAT = ("chat", "--plain", *ANSWER, "--max-tokens", "8")
LINES = [f"line-{n}" for n in range(6)]
"""The ids of a batch's lines."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def told(self) -> str:
        """The last line of news; empty without one."""
        return (self.err.splitlines() or [""])[-1]


@dataclass(slots=True)
class Ground:
    """Data directory, settings and outputs under one folder.

    Args:
        folder: empty.
        model: SmolLM2's file; the store gets a link to it.
        measured: a folder of measurements to begin with, so that nothing is measured again.
    """

    folder: Path
    model: Path
    measured: Path | None = None
    data: Path = field(init=False)
    config: Path = field(init=False)
    blob: Path = field(init=False)

    def __post_init__(self) -> None:
        self.data, self.config = self.folder / "data", self.folder / "config"
        (self.data / "blobs").mkdir(parents=True, mode=0o700)
        self.config.mkdir()
        self.data.chmod(0o700)
        self.blob = self.data / "blobs" / self.model.resolve().name
        self.blob.symlink_to(self.model.resolve())
        if self.measured is not None and self.measured.is_dir():
            shutil.copytree(self.measured, self.data / "calibration")

    @property
    def history(self) -> Path:
        """The file of conversations."""
        return self.data / "history" / "history.db"

    @property
    def output(self) -> Path:
        """What a batch writes."""
        return self.folder / "out.jsonl"

    @staticmethod
    def wrong_clock(chance: Random) -> dict[str, str]:
        """Return variables by which a process has a wrong clock: of 1970, 2096, or one that jumps by years between two looks."""
        how = chance.choice(["past", "future", "jumping"])
        return {"PYTHONPATH": str(CLOCK), "LOCALSPEC_WRONG_CLOCK": how}

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of this user's processes."""
        kept = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("HF_", "LOCALSPEC_", "PYTHONWARNINGS"))
        }
        path = os.pathsep.join(filter(None, (variables.get("PYTHONPATH"), str(ROOT))))
        return {
            **kept,
            "LOCALSPEC_DATA_DIR": str(self.data),
            "LOCALSPEC_CONFIG_DIR": str(self.config),
            "HF_HOME": str(self.folder / "hub"),
            "HF_HUB_OFFLINE": "1",
            "PIP_NO_INDEX": "1",
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_FIND_LINKS": str(self.folder / "wheels"),
            **variables,
            "PYTHONPATH": path,
        }

    def start(
        self,
        *arguments: str,
        limits: Limits = NONE,
        stdin: int = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.PIPE,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> "subprocess.Popen[bytes]":
        """Start the command."""
        return subprocess.Popen(
            limits.command([*COMMAND, *arguments]),
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env=self.environment(variables),
            cwd=self.folder,
        )

    def run(self, *arguments: str, said: bytes = b"", **more: Any) -> Ended:
        """Run the command to its end; `more` is as for `start`."""
        with self.start(*arguments, stdin=subprocess.PIPE, **more) as process:
            try:
                out, err = patiently(process, said)
            finally:
                process.kill()
        return Ended(process.returncode, (out or b"").decode(), err.decode())

    @contextmanager
    def started(self, *arguments: str, limits: Limits = NONE) -> Iterator["Running"]:
        """Start the command and leave it running; it is killed if it outlives the trial."""
        # Others than the chat would wait for the end of a pipe before they begin.
        stdin = subprocess.PIPE if arguments[0] == "chat" else subprocess.DEVNULL
        process = self.start(*arguments, limits=limits, stdin=stdin)
        running = Running(process)
        try:
            yield running
        finally:
            running.close()


class Running:
    """A command that runs: what it said so far, and what it is told.

    Args:
        process: with pipes.
    """

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self.out, self.err = bytearray(), bytearray()
        assert process.stdout is not None
        assert process.stderr is not None
        self._readers = [
            threading.Thread(target=_collect, args=each, daemon=True)
            for each in ((process.stdout, self.out), (process.stderr, self.err))
        ]
        for reader in self._readers:
            reader.start()

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

    def until(self, reached: Callable[["Running"], bool]) -> None:
        """Wait for something to come true while it runs."""
        for _ in range(PATIENCE):
            if reached(self):
                return
            assert self.process.poll() is None, f"it ended: {self.err.decode()}"
            time.sleep(_POLL_S)
        raise AssertionError(f"waited in vain: {self.err.decode()}")

    @property
    def answers(self) -> int:
        """How many answers a chat in lines has reported as done."""
        return self.err.count(b" \xc2\xb7 seed ")

    def until_answers(self, count: int) -> None:
        """Wait until a chat has reported so many answers."""
        self.until(lambda running: running.answers >= count)

    def children(self) -> list[int]:
        """Return the processes that it has started."""
        pid = self.process.pid
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return [int(each) for each in text.split()]

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, *, close_stdin: bool = True) -> Ended:
        """Wait for its end, which the end of its input brings about; return what it said."""
        if close_stdin and self.process.stdin is not None:
            self.process.stdin.close()
        self.until_gone()
        for reader in self._readers:
            reader.join()
        return Ended(
            self.process.returncode,
            self.out.decode(errors="replace"),
            self.err.decode(errors="replace"),
        )

    def until_gone(self) -> None:
        """Wait for its end."""
        for _ in range(PATIENCE):
            if self.process.poll() is not None:
                return
            time.sleep(_POLL_S)
        raise AssertionError(f"it does not end: {self.err.decode()}")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for reader in self._readers:
            reader.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


def patiently(process: "subprocess.Popen[bytes]", said: bytes = b"") -> tuple[bytes, bytes]:
    """Wait for the end of a process; return what it said."""
    rest: bytes | None = said or None
    for _ in range(PATIENCE // 10):
        try:
            return process.communicate(rest, timeout=10 * _POLL_S)
        except subprocess.TimeoutExpired:
            rest = None  # it is on its way
    raise AssertionError("it does not end")


def _collect(stream: IO[bytes], into: bytearray) -> None:
    while piece := os.read(stream.fileno(), 65536):
        into += piece


def chat(ground: Ground, *lines: str, **more: Any) -> Ended:
    """Talk in lines, up to the end of the input."""
    return ground.run(*SHORT_CHAT, said="".join(f"{line}\n" for line in lines).encode(), **more)


def answer(ground: Ground, *arguments: str, **more: Any) -> Ended:
    """Answer a prompt."""
    words: Sequence[str] = arguments or ("Name a river.",)
    return ground.run("run", *ANSWER, "--max-tokens", "8", *words, **more)


def batch(ground: Ground, *arguments: str, **more: Any) -> Ended:
    """Answer a file of prompts."""
    return ground.run("batch", *batch_arguments(ground), *arguments, **more)


def batch_arguments(ground: Ground) -> list[str]:
    """Return a batch's arguments; the file of prompts is written if there is none yet."""
    source = ground.folder / "in.jsonl"
    if not source.exists():
        lines = [f'{{"id": "{each}", "prompt": "A story about {each}."}}\n' for each in LINES]
        source.write_text("".join(lines))
    to = ["-o", str(ground.output), "--resume", "--seed", "1", "--max-tokens", "8"]
    return [str(source), *to, *ANSWER]
