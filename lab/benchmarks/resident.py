"""How soon `localspec run` answers beside a server that has the model in memory, against a second turn of a chat.

    python -m lab.benchmarks.resident [--pair qwen2.5-coder-1.5b] [--rounds 7] [--threads N]

Starts `localspec serve` and, in a process of its own, the engine that a chat has; both have the model in memory, and
only one of them works at a time. In turns, as often as there are rounds: the engine answers one question, then a second
one in the same conversation; then `localspec run` is started and answers the second question. Told are the times to the
first text, from the asking for the second turn and from the start of the process for `run`, what of it `run` calls its
first token, and the median of the quotients of neighbours. Every question begins with a number of its own, so that
nobody knows it from before; both know what comes before it in their template.
"""

import argparse
import json
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from lab.benchmarks.workbench import machine
from localspec.chat.events import Text
from localspec.engine.client import EngineClient
from localspec.engine.protocol import EngineDied, Failed, Ready, ReplyDone, ReplyEvents
from localspec.messages import Message
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams

_FIRST = "{}. Name three rivers of Europe, and say in a sentence where each of them ends."
_SECOND = "{}. Which of the planets has the most moons, and who found the first of them?"
_TOKENS = 16
_OPTIONS = ReplyOptions(SamplingParams(temperature=0), max_tokens=_TOKENS, seed=1)
_COMMAND = (sys.executable, "-m", "localspec")


@contextmanager
def serving(flags: list[str]) -> Iterator[int]:
    """Serve while this lasts; yield the server's process."""
    process = subprocess.Popen(
        [*_COMMAND, "serve", *flags, "--port", "0"], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if "serving" in line:
                break
        else:
            raise SystemExit("the server did not start")
        while not re.search(
            rf"^ *{process.pid} ",
            subprocess.check_output([*_COMMAND, "ps"], text=True),
            re.MULTILINE,
        ):
            time.sleep(0.1)
        yield process.pid
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def first_text_s(engine: EngineClient, messages: list[Message]) -> tuple[float, Message]:
    """Ask; return the seconds to the first text, and the whole answer."""
    start, first_s = time.perf_counter(), 0.0
    engine.ask(messages, _OPTIONS)
    while True:
        match engine.wait(1.0):
            case ReplyEvents(events=events) if not first_s:
                if any(isinstance(each, Text) for each in events):
                    first_s = time.perf_counter() - start
            case ReplyDone(message=message):
                return first_s, message
            case Failed(reason=reason) | EngineDied(reason=reason):
                raise SystemExit(reason)


def run_s(flags: list[str], question: str) -> tuple[float, float]:
    """Run `localspec run`; return the seconds to its first text, and what it calls its first token."""
    words = [*_COMMAND, "run", *flags, "--no-keep", "--temperature", "0", "--seed", "1"]
    start = time.perf_counter()
    with subprocess.Popen(
        [*words, "-n", str(_TOKENS), question], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        first_s = time.perf_counter() - start
        process.stdout.read()
        told = process.stderr.read().decode()
    if process.returncode or "the server that runs" not in told:
        raise SystemExit(f"run was not answered by the server: {told}")
    again = f"Again: {question}"
    done = subprocess.check_output([*words, "--json", "-n", "1", again], stderr=subprocess.DEVNULL)
    return first_s, json.loads(done)["timings"]["first_token_s"]


def main() -> None:
    """Measure in turns, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pair", default="qwen2.5-coder-1.5b")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int)
    asked = parser.parse_args()
    flags = ["-m", asked.pair]
    flags += [] if asked.threads is None else ["--threads", str(asked.threads)]
    print(f"{machine()}; {asked.pair}", flush=True)
    engine = EngineClient()
    engine.start()
    engine.load(LaunchOptions(asked.pair, load=LoadOptions(threads=asked.threads)))
    while not isinstance(notice := engine.wait(1.0), Ready):
        if isinstance(notice, Failed | EngineDied):
            raise SystemExit(notice.reason)
    quotients = []
    with serving(flags):
        for number in range(asked.rounds + 1):
            talk = [Message.user(_FIRST.format(2 * number))]
            talk.append(first_text_s(engine, talk)[1])
            question = _SECOND.format(2 * number + 1)
            chat_s, _ = first_text_s(engine, [*talk, Message.user(question)])
            ours_s, token_s = run_s(flags, question)
            if number:  # before the first, nobody knew a template
                quotients.append(ours_s / chat_s)
                print(
                    f"second turn {chat_s:.3f} s, run {ours_s:.3f} s, of it first token {token_s:.3f} s: "
                    f"{quotients[-1]:.3f}",
                    flush=True,
                )
    engine.close()
    print(f"median of the quotients: {statistics.median(quotients):.3f}")


if __name__ == "__main__":
    main()
