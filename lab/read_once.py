"""What a second question about a text costs beside the first, for every command: whole processes, interleaved, medians with their spread.

    LOCALSPEC_DATA_DIR=... python -m lab.read_once run exact batch serve branch [--model M] [--rounds 3] [--peer PATH/llama-completion]
    LOCALSPEC_DATA_DIR=... python -m lab.read_once tokens texts [--model M]

`run`, `exact`: `run -f` without a cache, with an empty one (so what writing costs), and a second question. `batch`: its first line
in a second batch behind the same preamble; `serve`: behind a restart with another --parallel; `branch`: the fourth of a conversation,
in a new process: seconds of reading beside those of the first. `tokens`: 30,000, and seconds of reading. `texts`: answers under --exact that differ.
Each round has a data directory of its own, beside the models and measurements of the usual one.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import httpx

from lab.ports import free_port
from lab.serving import ServerProcess
from localspec.storage.paths import data_dir

SOURCE = Path(__file__).parents[1] / "localspec" / "decoding"
QUESTIONS = (
    "What does this do? One sentence.",
    "Name one class of it.",
    "Which module has no class?",
)
THREADS = os.environ.get("READ_ONCE_THREADS", "2")
SECONDS = defaultdict[str, list[float]](list)


def plain(model: str) -> tuple[str, ...]:
    """Return the flags of a short answer that nothing drafts."""
    return "-m", model, "--draft", "off", "--max-tokens", "4", "--threads", THREADS


def text(chars: int) -> str:
    """Return real code of so many characters."""
    files = sorted(SOURCE.parent.rglob("*.py"), key=lambda each: (each.parent != SOURCE, each))
    whole = "".join(each.read_text() for each in files)
    return whole[:chars]


@contextmanager
def fresh() -> Iterator[dict[str, str]]:
    """Yield an environment whose data directory has the usual models and measurements, and nothing that was read."""
    with tempfile.TemporaryDirectory(prefix="read-once-") as folder:
        for each in data_dir().iterdir():
            if each.name not in {"reads", "history", "telemetry", "store"}:
                (Path(folder) / each.name).symlink_to(each)
        yield {**os.environ, "LOCALSPEC_DATA_DIR": folder}


def timed(name: str, command: Sequence[str], environment: dict[str, str]) -> str:
    """Run a command, and note the seconds of the whole process, and those of its cores; return what it printed."""
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    SECONDS[name].append(time.perf_counter() - start)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cores = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    SECONDS[f"{name}, of cores"].append(cores)
    return done.stdout


def local(*words: str) -> list[str]:
    """Return the command of a verb."""
    return [sys.executable, "-m", "localspec", *words]


def run(model: str, file: Path, *more: str) -> None:
    """Ask three times: without a cache, into an empty one, and again."""
    base = [
        "run",
        "--own",
        "-m",
        model,
        "--draft",
        "off",
        "--max-tokens",
        "12",
        "--temperature",
        "0",
    ]
    base += ["--threads", THREADS, "--quiet", *more, "-f", str(file)]
    label = "exact" if "--exact" in more else "run"
    with fresh() as environment:
        timed(
            f"{label} first, no cache", local(*base, "--no-prompt-cache", QUESTIONS[0]), environment
        )
        timed(f"{label} first", local(*base, QUESTIONS[0]), environment)
        timed(f"{label} second", local(*base, QUESTIONS[1]), environment)


def peer(program: Path, model: Path, file: Path) -> None:
    """Ask llama-completion twice with its own cache of a prompt."""
    with tempfile.TemporaryDirectory() as folder:
        for name, question in zip(("first", "second"), QUESTIONS, strict=False):
            prompt = Path(folder) / f"{name}.txt"
            prompt.write_text(f"{file.read_text()}\n\n{question}\n")
            cache = ["--prompt-cache", f"{folder}/cache", "--prompt-cache-all"]
            command = [
                str(program),
                "-m",
                str(model),
                "-f",
                str(prompt),
                "-n",
                "12",
                "-c",
                "4096",
                "-t",
                "2",
            ]
            timed(
                f"llama-completion {name}",
                [*command, "-no-cnv", "--temp", "0", *cache],
                dict(os.environ),
            )


def batch(model: str, file: Path) -> None:
    """Answer twenty lines with one preamble, twice; note how long each line's prompt was read."""
    with fresh() as environment:
        folder = Path(environment["LOCALSPEC_DATA_DIR"])
        for turn in ("first", "second"):
            lines = [json.dumps({"prompt": f"{turn}: what is {n} plus {n}?"}) for n in range(20)]
            (folder / "in.jsonl").write_text("\n".join(lines))
            command = local(
                "batch",
                "--own",
                *plain(model),
            )
            out = timed(
                f"batch {turn}, all of it",
                [*command, "--quiet", "--system", file.read_text(), str(folder / "in.jsonl")],
                environment,
            )
            read = [json.loads(line)["timings"]["prefill_s"] for line in out.splitlines()]
            SECONDS[f"batch {turn}, its first line"].append(read[0])
            SECONDS[f"batch {turn}, other lines"].append(statistics.median(read[1:]))


def serve(model: str, file: Path) -> None:
    """Ask a server, and another one behind a restart with another number of sequences."""
    with fresh() as environment:
        for turn, count in (("first", "2"), ("second, --parallel 3", "3")):
            port = free_port()
            command = ["env", f"LOCALSPEC_DATA_DIR={environment['LOCALSPEC_DATA_DIR']}"]
            command += local(
                "serve", model, "--draft", "off", "--parallel", count, "--port", str(port)
            )
            command += ["--ctx", "4096", "--threads", THREADS]
            with closing(ServerProcess(command, lambda said: said if "http://" in said else None)):
                talk = [
                    {"role": "system", "content": file.read_text()},
                    {"role": "user", "content": turn},
                ]
                start = time.perf_counter()
                body = {"messages": talk, "max_tokens": 12, "temperature": 0}
                url = f"http://127.0.0.1:{port}/v1/chat/completions"
                httpx.post(url, json=body, timeout=900).raise_for_status()
                SECONDS[f"serve {turn}"].append(time.perf_counter() - start)


def branch(model: str, file: Path) -> None:
    """Ask about a file in a conversation, branch off three times, and in a new process a fourth time."""
    code = """
import json, sys
from localspec.chat.request import Request
from localspec.engine.protocol import Load
from localspec.engine.engine import Needs
from localspec.engine.sync import entered, iterate, run_sync
from localspec.launch.engine import open_engine
from localspec.messages import Message
from localspec.options import *
threads = int(sys.argv.pop())
model, file, *questions = sys.argv[1:]
load = LaunchOptions(target=model, draft="off", load=LoadOptions(n_ctx=4096, threads=threads))
with entered(open_engine(Load(load, own=True), Needs())) as engine:
    run_sync(engine.loaded())
    first = (Message.user(open(file).read() + "\\n\\nWhat is it?"), Message.assistant("Code."))
    for number, question in enumerate(questions):
        turns = (*first, Message.user(question)) if question else first[:1]
        options = ReplyOptions(SamplingParams(temperature=0), max_tokens=12)
        *_, end = iterate(engine.stream(Request(0, turns, options, conversation=1)))
        print(json.dumps([end.reply.prefill_s, end.reply.prompt_tokens - end.reply.cached_tokens]))
"""
    with fresh() as environment:
        command = [sys.executable, "-c", code, model, str(file)]
        out = timed(
            "branches, first process", [*command, "", "And why?", "How?", THREADS], environment
        )
        SECONDS["first turn"].append(json.loads(out.splitlines()[0])[0])
        out = timed("fourth branch, new process", [*command, "Who needs it?", THREADS], environment)
        SECONDS["fourth branch"].append(json.loads(out.splitlines()[0])[0])


def tokens(model: str) -> None:
    """Print how long 30,000 tokens are read, and by a second question."""
    with fresh() as environment:
        file = Path(environment["LOCALSPEC_DATA_DIR"]) / "long.py"
        file.write_text(text(112_000))
        base = [
            "run",
            "--own",
            *plain(model),
            "--json",
        ]
        for question in QUESTIONS[:2]:
            out = timed("30,000 tokens", local(*base, "-f", str(file), question), environment)
            figures = json.loads(out)
            count, read_s = figures["usage"]["prompt_tokens"], figures["timings"]["prefill_s"]
            print(f"{count} tokens, read in {read_s} s")


def texts(model: str, count: int = 200) -> None:
    """Print how many of so many answers under --exact differ with and without the cache, each in a process of its own."""
    differ, used = 0, 0
    with fresh() as environment:
        file = Path(environment["LOCALSPEC_DATA_DIR"]) / "some.py"
        for number in range(count):
            file.write_text(text(500 + 200 * (number % 5)))
            base = [
                "run",
                "--own",
                "-m",
                model,
                "--exact",
                "--max-tokens",
                "24",
                "--threads",
                THREADS,
                "--json",
            ]
            base += [
                "--draft",
                ("off", "lookup")[number % 2],
                "--temperature",
                ("0", "0.8")[number // 2 % 2],
            ]
            base += ["--seed", str(number), "-f", str(file), f"{number}. {QUESTIONS[number % 3]}"]
            said = [
                json.loads(timed("texts", local(*base, *more), environment))
                for more in ((), ("--no-prompt-cache",))
            ]
            differ += said[0]["text"] != said[1]["text"]
            with_s, without_s = (each["timings"]["prefill_s"] for each in said)
            used += 2 * with_s < without_s
            print(f"{number + 1} under --exact, {used} read in half of the time, {differ} differ")


def main() -> None:
    """Measure what the command line names, and print medians, least and most."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="+")
    parser.add_argument("--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--peer", type=Path)
    parser.add_argument("--file", type=Path, help="the model's, for the peer")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "about.py"
        file.write_text(text(9_000))
        timings: dict[str, Callable[[], None]] = {
            "run": lambda: run(given.model, file),
            "exact": lambda: run(given.model, file, "--exact"),
            "batch": lambda: batch(given.model, file),
            "serve": lambda: serve(given.model, file),
            "branch": lambda: branch(given.model, file),
        }
        for turn in range(given.rounds):
            for name in given.what:
                if name in timings:
                    timings[name]()
            if given.peer is not None:
                peer(given.peer, given.file, file)
            print(f"round {turn + 1} done", file=sys.stderr)
    if "tokens" in given.what:
        tokens(given.model)
    if "texts" in given.what:
        texts(given.model, given.count)
    for name, seconds in SECONDS.items():
        middle = statistics.median(seconds)
        print(
            f"{name:32} {middle:8.2f} s  ({min(seconds):.2f} to {max(seconds):.2f}, {len(seconds)})"
        )


if __name__ == "__main__":
    main()
