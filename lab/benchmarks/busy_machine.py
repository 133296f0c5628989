"""Tokens per second beside programs that keep cores busy: `localspec run`, and `localspec serve` with 1 to 8 clients.

    python -m lab.benchmarks.busy_machine [--pair smollm2-135m] [--busy 2] [--clients 1,2,4,8] [--minutes 7]

The server runs with its defaults, and is idle while `run` answers in a process of its own. In turns, as often as time
allows: a question to `run`, then the same one to the server, then so many clients at once. Greedy, without drafts; the busy
programs are loops of Python. One client's figure is that of its decoding, as `run` tells it, and the last line is the median
of what neighbours are to each other; of several clients it is all tokens over all seconds, prompts included.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from lab.benchmarks.workbench import machine
from lab.serving import ServeProcess

_TOKENS = 64
_QUESTION = "{}. Write about the history of bridges."


@contextmanager
def busy(programs: int) -> Iterator[None]:
    """Keep so many programs busy meanwhile."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(programs)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def run_tokens_per_s(pair: str, question: str) -> float:
    """Return the pace of `localspec run` in a process of its own."""
    words = ["run", "-m", pair, "--own", "--no-keep", "--json", "--draft", "off", "--temperature"]
    command = [sys.executable, "-m", "localspec", *words, "0", "-n", str(_TOKENS), question]
    answer: dict[str, Any] = json.loads(
        subprocess.run(command, check=True, capture_output=True).stdout
    )
    return float(answer["timings"]["tokens_per_s"])


def ask(address: str, question: str, max_tokens: int = _TOKENS) -> dict[str, Any]:
    """Return a server's answer."""
    body = {
        "messages": [{"role": "user", "content": question}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "draft": "off",
    }
    request = urllib.request.Request(
        f"{address}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


def served_tokens_per_s(address: str, questions: list[str]) -> float:
    """Return the pace of so many clients, each with a question."""
    if len(questions) == 1:
        return float(ask(address, questions[0])["timings"]["tokens_per_s"])
    start = time.perf_counter()
    with ThreadPoolExecutor(len(questions)) as pool:
        answers = list(pool.map(lambda question: ask(address, question), questions))
    tokens = sum(each["usage"]["completion_tokens"] for each in answers)
    return float(tokens / (time.perf_counter() - start))


def main() -> None:
    """Measure in turns, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pair", default="smollm2-135m")
    parser.add_argument("--busy", type=int, default=2)
    parser.add_argument("--clients", default="1,2,4,8")
    parser.add_argument("--minutes", type=float, default=7.0)
    chosen = parser.parse_args()
    levels = [int(each) for each in chosen.clients.split(",")]
    print(f"{machine()}; {chosen.pair}; {chosen.busy} busy programs", flush=True)
    end_s = time.monotonic() + 60 * chosen.minutes
    server = ServeProcess(["-m", chosen.pair])
    paces: dict[str, list[float]] = {"run": [], **{f"serve, {n} clients": [] for n in levels}}
    try:
        ask(server.address, _QUESTION.format(0))
        run_tokens_per_s(chosen.pair, _QUESTION.format(0))  # what is measured once, is
        number, longest_s = 1, 0.0
        with busy(chosen.busy):
            while time.monotonic() + longest_s < end_s:
                begun_s, first = time.monotonic(), number
                paces["run"].append(run_tokens_per_s(chosen.pair, _QUESTION.format(first)))
                for clients in levels:
                    asked = [_QUESTION.format(first + at) for at in range(clients)]
                    pace = served_tokens_per_s(server.address, asked)
                    paces[f"serve, {clients} clients"].append(pace)
                    first += 1000
                number += max(levels)
                longest_s = max(longest_s, time.monotonic() - begun_s)
    finally:
        server.close()
    print(f"{'tokens/s':<18} {'median':>7} {'least':>7} {'most':>7}   rounds")
    for name, seen in paces.items():
        middle = statistics.median(seen)
        print(f"{name:<18} {middle:7.1f} {min(seen):7.1f} {max(seen):7.1f}   {len(seen)}")
    pairs = zip(paces[f"serve, {levels[0]} clients"], paces["run"], strict=True)
    ratio = statistics.median(served / own for served, own in pairs)
    print(f"serve with {levels[0]} ÷ run, median of neighbours: {ratio:.2f}")


if __name__ == "__main__":
    main()
