"""The chat with real weights in a real terminal: its speed, its share of the CPU, its time to first token.

    python -m lab.benchmarks.chat_real [--pair NAME] [--threads N] [speed|busy|opening|second_turn] ...

`localspec chat` runs in a tmux of its own, keys are sent to it, and its figures are read from where it keeps
them. Needs tmux, and the pair's files in the data directory (`localspec pull NAME`); the history that it writes is
a temporary one. `second_turn` prints what llama.cpp's own bench has to be asked, and asks it where
`--llama-bench PATH` says where it is.
"""

import argparse
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from localspec.chat.events import Text
from localspec.engine.client import EngineClient
from localspec.engine.protocol import (
    Notice,
    Ready,
    ReplyDone,
    ReplyEvents,
)
from localspec.history.archive import History
from localspec.messages import Message
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from localspec.storage.paths import data_dir

LOCALSPEC = (sys.executable, "-m", "localspec")
M = TypeVar("M", bound=Notice)

COLUMNS, ROWS = 120, 40
RUNS = 10
PATIENCE_S = 180.0
PROMPT = (
    "Write a complete Python module with a class Matrix: addition, multiplication, transposition, determinant, "
    "inverse, a nice repr, type hints and docstrings everywhere, and tests. Answer with one block of code only."
)
WORDS = (
    "The river rises in the mountains and runs through three countries before it meets the sea. "
)


@dataclass(frozen=True, slots=True)
class Setting:
    """What is measured."""

    pair: str
    threads: int | None
    llama_bench: str | None

    @property
    def flags(self) -> list[str]:
        """The flags that `run` and `chat` get alike."""
        threads = [] if self.threads is None else ["--threads", str(self.threads)]
        return ["--offline", "--pair", self.pair, "--temperature", "0", "--seed", "1", *threads]


class Screen:
    """A program in a tmux whose server is a child of this process."""

    def __init__(self, *command: str, folder: Path) -> None:
        self._socket = f"localspec-{os.getpid()}"
        environment = {**os.environ, "LOCALSPEC_DATA_DIR": str(folder), "TERM": "xterm-256color"}
        self._server = subprocess.Popen(
            ["tmux", "-L", self._socket, "-f", "/dev/null", "-D"], env=environment
        )
        while self._tmux("set", "-g", "status", "off").returncode:
            time.sleep(0.02)
        self.start_s = time.monotonic()
        self._tmux("new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS), *command)
        self.pid = int(self._tmux("display", "-p", "#{pane_pid}").stdout)

    def type(self, text: str) -> None:
        """Send text, as if typed."""
        self._tmux("send-keys", "-l", text)

    def press(self, key: str) -> None:
        """Send a key by its name in tmux."""
        self._tmux("send-keys", key)

    def text(self) -> str:
        """Return what the screen shows."""
        return self._tmux("capture-pane", "-p").stdout

    def until(self, holds: Callable[[str], bool], poll_s: float = 0.05) -> float:
        """Wait until the screen shows something; return the seconds since the start.

        Looking takes CPU of its own, a process each time: seldom while something is timed.
        """
        end_s = time.monotonic() + PATIENCE_S
        while not holds(self.text()):
            if time.monotonic() > end_s:
                raise TimeoutError(self.text())
            time.sleep(poll_s)
        return time.monotonic() - self.start_s

    def cpu_s(self) -> float:
        """Return the CPU time of the screens' process, the engine's not included."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """Leave the program, and end the tmux."""
        self.press("C-q")
        end_s = time.monotonic() + 10
        while Path(f"/proc/{self.pid}").exists() and time.monotonic() < end_s:
            time.sleep(0.05)
        self._tmux("kill-server")
        self._server.wait()

    def _tmux(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["tmux", "-L", self._socket, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)


@contextmanager
def own_history() -> Iterator[Path]:
    """Yield a data directory with the models of the usual one, and a history of its own."""
    with tempfile.TemporaryDirectory() as name:
        for each in data_dir().iterdir():
            if each.name != "history":
                (Path(name) / each.name).symlink_to(each)
        yield Path(name)


def run_speed(setting: Setting, most: int) -> float:
    """Return the tokens per second of `localspec run`."""
    with own_history() as folder:
        done = subprocess.run(
            [*LOCALSPEC, "run", *setting.flags, "--json", "--max-tokens", str(most), PROMPT],
            env={**os.environ, "LOCALSPEC_DATA_DIR": str(folder)},
            capture_output=True,
            check=True,
        )
    return float(json.loads(done.stdout)["timings"]["tokens_per_s"])


@dataclass(frozen=True, slots=True)
class Seen:
    """One answer in the chat: its figures, and what the screens took while it streamed."""

    tokens: int
    tokens_per_s: float
    seconds: float
    cpu_s: float


def chat_answer(setting: Setting, most: int, left_alone_s: float = 0.0) -> Seen:
    """Ask in a chat that is started for it; for some seconds its screen is not looked at, which takes CPU, too."""
    with own_history() as folder:
        command = [*LOCALSPEC, "chat", *setting.flags]
        screen = Screen(*command, "--max-tokens", str(most), folder=folder)
        screen.until(lambda text: "context 0%" in text)
        screen.type(PROMPT)
        screen.press("Enter")
        screen.until(lambda text: "answering" in text and "tokens/s" in text, poll_s=0.5)
        start_s, cpu_s = time.monotonic(), screen.cpu_s()
        time.sleep(left_alone_s)
        screen.until(lambda text: "answering" not in text, poll_s=1.0)
        seconds, cpu_s = time.monotonic() - start_s, screen.cpu_s() - cpu_s
        screen.close()
        with closing(sqlite3.connect(folder / "history/history.db")) as database:
            query = "SELECT figures FROM message WHERE role = 'assistant'"
            figures = json.loads(database.execute(query).fetchone()[0])
    return Seen(figures["tokens"], figures["tokens_per_s"], seconds, cpu_s)


def speed(setting: Setting, most: int = 200) -> None:
    """Tokens per second of the same answer, in the chat and by `localspec run`, in turns."""
    chats, runs = [], []
    for _ in range(RUNS):
        runs.append(run_speed(setting, most))
        left_alone_s = max(most / runs[-1] - 1.0, 0.0)
        chats.append(chat_answer(setting, most, left_alone_s).tokens_per_s)
    chat, run = statistics.median(chats), statistics.median(runs)
    paired = statistics.median(chat / run for chat, run in zip(chats, runs, strict=True))
    print(
        f"{setting.pair}, {most} tokens: {paired:.3f} of `run`, the median of {RUNS} neighbouring pairs; medians: "
        f"chat {chat:.1f} tokens/s, run {run:.1f} (chat {_list(chats)}; run {_list(runs)})"
    )


def busy(setting: Setting) -> None:
    """Share of a core that the screens take while 1,000 tokens stream and the engine uses every core."""
    seen = chat_answer(setting, 1000)
    print(
        f"{setting.pair}: {seen.tokens} tokens at {seen.tokens_per_s:.1f} tokens/s; the screens took "
        f"{seen.cpu_s:.2f} s of CPU in {seen.seconds:.1f} s, {seen.cpu_s / seen.seconds:.1%} of a core"
    )


def opening(setting: Setting, messages: int = 500) -> None:
    """Wall time of `localspec chat --continue` up to the end of a long conversation on the screen."""
    with own_history() as folder:
        fill(folder / "history", messages)
        walls, cpus = [], []
        for _ in range(RUNS):
            command = [*LOCALSPEC, "chat", *setting.flags, "--continue"]
            screen = Screen(*command, folder=folder)
            walls.append(screen.until(lambda text: f"Question {messages // 2 - 1}" in text))
            cpus.append(screen.cpu_s())
            screen.close()
    print(
        f"{messages} messages, `localspec chat --continue`: on the screen {statistics.median(walls):.2f} s after the "
        f"start (most {max(walls):.2f}), {statistics.median(cpus):.2f} s of CPU; medians of {RUNS}"
    )


def fill(folder: Path, messages: int) -> None:
    """Write a conversation."""
    with closing(History(folder)) as history:
        conversation, parent = history.create(), None
        for each in range(messages // 2):
            parent = history.add_user(
                conversation, parent, Message.user(f"Question {each}: " + WORDS)
            )
            reply = history.begin_reply(conversation, parent)
            code = "```python\n" + "x = [1]\n" * 20 + "```\n"
            reply.finish(Message.assistant(f"Answer {each}.\n\n- one\n- two\n\n{code}"))
            parent = reply.message


def second_turn(setting: Setting) -> None:
    """Time to first token of a second turn, and what it evaluates, at two depths."""
    engine = EngineClient()
    engine.start()
    engine.load(
        LaunchOptions(pair=setting.pair, offline=True, load=LoadOptions(threads=setting.threads))
    )
    heard(engine, Ready)
    for depth in (300, 3000):
        turns, history = grown(engine, depth)
        times, seen = [], []
        for each in range(RUNS):
            question = Message.user(f"Question {each}. " + WORDS * 3)
            start_s = time.monotonic()
            engine.ask(
                (*turns, question),
                ReplyOptions(SamplingParams(temperature=0), max_tokens=1, seed=1),
            )
            while not any(isinstance(each, Text) for each in heard(engine, ReplyEvents).events):
                pass
            times.append(time.monotonic() - start_s)
            seen.append(heard(engine, ReplyDone).reply)
        new = [each.prompt_tokens - each.cached_tokens for each in seen]
        cached = [each.cached_tokens for each in seen]
        text = (
            f"{setting.pair}, history of {history} tokens: cached {min(cached)}, evaluated {max(new)}, "
            f"first token after {statistics.median(times):.3f} s ({_list(times, 3)})"
        )
        print(text + compared(setting, min(cached), max(new), statistics.median(times)), flush=True)
    engine.close()


def grown(engine: EngineClient, depth: int) -> tuple[tuple[Message, ...], int]:
    """Hold a first turn of so many tokens; return it, and how many it came to."""
    question = Message.user(WORDS * (depth // 18) + "Answer in five words.")
    while True:
        engine.ask([question], ReplyOptions(SamplingParams(temperature=0), max_tokens=16, seed=1))
        finished = heard(engine, ReplyDone)
        length = finished.reply.prompt_tokens + finished.reply.completion_tokens
        if length >= depth:
            return (question, finished.message), length
        more = WORDS * ((depth - length) // 18 + 1)
        question = Message.user(more + question.text)


def compared(setting: Setting, depth: int, tokens: int, seconds: float) -> str:
    """Return what llama.cpp's bench needs for as many tokens at that depth, as the end of a sentence."""
    if setting.llama_bench is None:
        return f"; compare with llama-bench -p {tokens} -n 0 -d {depth}"
    path = data_dir() / "blobs" / target_digest(setting.pair)
    threads = str(setting.threads or len(os.sched_getaffinity(0)))
    best: dict[str, float] = {}
    for attention in ("off", "on"):
        where = ["-m", str(path), "-p", str(tokens), "-n", "0", "-d", str(depth)]
        how = ["-t", threads, "-fa", attention, "-b", "128", "-ub", "128", "-r", str(RUNS)]
        command = [setting.llama_bench, *where, *how, "-o", "json"]
        done = subprocess.run(command, capture_output=True, check=True)
        samples = json.loads(done.stdout)[0]["samples_ns"]
        best[attention] = statistics.median(samples) / 1e9
    told = ", ".join(f"{each:.3f} s with -fa {name}" for name, each in best.items())
    ratios = ", ".join(f"{seconds / each:.3f}" for each in best.values())
    return f"; llama-bench {told}: {ratios}"


def target_digest(pair: str) -> str:
    """Return the file of a pair's target in the store."""
    from localspec.models.registry import load_registry

    registry = load_registry()
    entry = registry.find(registry.pair(pair).target)
    assert entry is not None
    assert entry.sha256 is not None
    return entry.sha256


def heard(engine: EngineClient, kind: type[M]) -> M:
    """Wait for a message of a kind."""
    from tests.engine.talking import hear_of

    last = hear_of(engine, kind)[-1]  # type: ignore[arg-type]  # one of the union
    if not isinstance(last, kind):
        raise TypeError(f"waited for {kind.__name__}, heard {last}")
    return last


def _list(values: list[float], digits: int = 1) -> str:
    return " ".join(f"{each:.{digits}f}" for each in values)


MEASURES = {"speed": speed, "busy": busy, "opening": opening, "second_turn": second_turn}


def main() -> None:
    """Read the command line, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("measures", nargs="*", choices=[*MEASURES, []], default=list(MEASURES))
    parser.add_argument("--pair", default="qwen2.5-coder-1.5b")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--llama-bench", metavar="PATH")
    arguments = parser.parse_args()
    setting = Setting(arguments.pair, arguments.threads, arguments.llama_bench)
    for name in arguments.measures:
        MEASURES[name](setting)


if __name__ == "__main__":
    main()
