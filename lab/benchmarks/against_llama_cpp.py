"""localspec beside llama.cpp's own programs: same machine, same files, same prompts, in turns.

    python -m lab.benchmarks.against_llama_cpp --llama-server PATH --llama-bench PATH [--repeats 3]

Both programs build from the source that llama-cpp-python's sdist carries (vendor/llama.cpp):
    cmake -S vendor/llama.cpp -B peer -DLLAMA_BUILD_UI=OFF -DLLAMA_BUILD_TESTS=OFF
    cmake --build peer -j2 --target llama-server llama-bench

Compared are: plain generation with llama-bench; generation with the draft model at length 3 with
llama-server's draft mode; time to the first token with llama-server without a draft; and what
share of decoding is neither a pass nor drafting.
"""

import argparse
import http.client
import json
import math
import os
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.decoding.drafter import NoDrafter

from lab.benchmarks.workbench import machine, one_of_each
from localspec.chat.assistant import Assistant
from localspec.decoding.policy import FixedPolicy, Policy
from localspec.launch import prepare
from localspec.models.pull import pull
from localspec.options import LaunchOptions, ReplyOptions, SamplingParams

DRAFT_LENGTH = 3


@dataclass(slots=True)
class Answer:
    """What one program did with one prompt."""

    tokens_per_s: float
    first_token_s: float
    n_tokens: int
    acceptance_rate: float | None
    sample_share: float = 0.0
    other_share: float = 0.0


@dataclass(slots=True)
class Server:
    """A llama-server that listens on a local port."""

    port: int

    def ask(self, prompt: str, max_tokens: int) -> Answer:
        """Send a chat request, stream the answer, and read the server's own figures."""
        body: dict[str, Any] = {
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": max_tokens,
            "temperature": 0,
            "stream": True,
            "cache_prompt": False,
            "timings_per_token": True,
        }
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        start = time.perf_counter()
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
        first: float | None = None
        timings: dict[str, Any] = {}
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            chunk = json.loads(line[6:])
            delta = (chunk.get("choices") or [{}])[0].get("delta", {})
            if first is None and delta.get("content"):
                first = time.perf_counter() - start
            timings = chunk.get("timings") or timings
        connection.close()
        drafted = timings.get("draft_n", 0)
        rate = timings["draft_n_accepted"] / drafted if drafted else None
        n_tokens = int(timings["predicted_n"])
        # The server counts the first token, which prefill gives, into its rate; we do not.
        rate_per_s = (n_tokens - 1) / (timings["predicted_ms"] / 1000)
        return Answer(rate_per_s, first or math.nan, n_tokens, rate)


@contextmanager
def serving(program: str, model: Path, *flags: str) -> Iterator[Server]:
    """Run a llama-server until the end of the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    threads = str(len(os.sched_getaffinity(0)))
    command = [program, "-m", str(model), "--port", str(port), "-c", "4096", "-np", "1"]
    command += ["-t", threads, "-tb", threads, "--jinja", *flags]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _wait_until_healthy(port, process)
            yield Server(port)
        finally:
            process.terminate()
            process.wait()


def _wait_until_healthy(port: int, process: "subprocess.Popen[bytes]") -> None:
    for _ in range(600):
        if process.poll() is not None:
            raise SystemExit(f"{process.args!r} ended with {process.returncode}")
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.2)
    raise SystemExit("llama-server did not become healthy within 120 s")


def bench_rate(program: str, model: Path, n_tokens: int) -> float:
    """Return llama-bench's generation rate in tokens per second, one repetition."""
    threads = str(len(os.sched_getaffinity(0)))
    command = [program, "-m", str(model), "-p", "0", "-n", str(n_tokens), "-r", "1"]
    output = subprocess.run(
        [*command, "-t", threads, "-o", "json"], check=True, capture_output=True
    ).stdout
    return float(json.loads(output)[0]["avg_ts"])


def ask_localspec(assistant: Assistant, policy: Policy, prompt: str, max_tokens: int) -> Answer:
    """Answer with an empty cache."""
    assistant.models.target.truncate(0)
    if assistant.models.draft_model is not None:
        assistant.models.draft_model.truncate(0)
    assistant.policy = policy
    options = ReplyOptions(SamplingParams(temperature=0), seed=1, max_tokens=max_tokens)
    reply = assistant.reply(prompt, options)
    timings = reply.timings
    return Answer(
        reply.tokens_per_s or math.nan,
        reply.first_token_s or math.nan,
        reply.completion_tokens,
        reply.acceptance.acceptance_rate,
        timings.sample_s / timings.decode_s,
        timings.other_s / timings.decode_s,
    )


def geometric_mean(values: list[float]) -> float:
    """Return the geometric mean."""
    return math.exp(statistics.fmean(map(math.log, values)))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--llama-server", required=True)
    parser.add_argument("--llama-bench", required=True)
    parser.add_argument("--pair", default="qwen2.5-coder-1.5b")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--plain-pairs", type=int, help="only compare plain runs, so many pairs")
    args = parser.parse_args()
    target, draft_model = pull(args.pair)
    print(f"{machine()}; {args.pair}, greedy, up to {args.max_tokens} tokens", flush=True)
    prompts = one_of_each()
    if args.plain_pairs:
        _compare_plain(args, target, prompts[0].prompt)
        return
    launch = LaunchOptions(pair=args.pair, draft="model", draft_length=DRAFT_LENGTH)
    assistant = prepare(launch).load()
    with_draft, plain = assistant.policy, FixedPolicy(NoDrafter(), 0)
    draft_flags = ["-md", str(draft_model), "--spec-type", "draft-simple"]
    draft_flags += ["--spec-draft-n-max", str(DRAFT_LENGTH)]
    rates: list[float] = []
    beside_bench: list[float] = []
    found: dict[tuple[str, str], list[Answer]] = {}
    with (
        serving(args.llama_server, target) as server,
        serving(args.llama_server, target, *draft_flags) as draft_server,
    ):
        programs = {
            "server off": lambda text: server.ask(text, args.max_tokens),
            "localspec off": lambda text: ask_localspec(assistant, plain, text, args.max_tokens),
            "server draft": lambda text: draft_server.ask(text, args.max_tokens),
            "localspec draft": lambda text: ask_localspec(
                assistant, with_draft, text, args.max_tokens
            ),
        }
        programs["server off"]("Hello.")  # the first request warms a server up
        programs["server draft"]("Hello.")
        for repeat in range(args.repeats):
            for prompt in prompts:
                # Every second repeat backwards, so that neither side is always the first.
                for name in sorted(programs, reverse=repeat % 2 == 1):
                    answer = programs[name](prompt.prompt)
                    found.setdefault((prompt.workload, name), []).append(answer)
            rates.append(bench_rate(args.llama_bench, target, args.max_tokens))
            ours = programs["localspec off"](prompts[0].prompt)
            beside_bench.append(ours.tokens_per_s / rates[-1])
            print(f"repeat {repeat + 1} of {args.repeats} done", flush=True)
    print(f"llama-bench: median {statistics.median(rates):.1f} tokens/s")
    print(
        f"localspec off / llama-bench, median of pairs: {statistics.median(beside_bench):.3f} (0.98)"
    )
    _report(found, [p.workload for p in prompts], list(programs))


def _compare_plain(args: argparse.Namespace, target: Path, prompt: str) -> None:
    """Compare plain runs of llama-server and localspec, each next to the other."""
    assistant = prepare(LaunchOptions(pair=args.pair, draft="off")).load()
    policy = FixedPolicy(NoDrafter(), 0)
    rates, first = [], []
    with serving(args.llama_server, target) as server:
        server.ask("Hello.", 16)
        for pair in range(args.plain_pairs):
            both = [
                lambda: server.ask(prompt, args.max_tokens),
                lambda: ask_localspec(assistant, policy, prompt, args.max_tokens),
            ]
            order = (0, 1) if pair % 2 else (1, 0)
            answers = {which: both[which]() for which in order}
            rates.append(answers[1].tokens_per_s / answers[0].tokens_per_s)
            first.append(answers[1].first_token_s / answers[0].first_token_s)
    low, middle, high = statistics.quantiles(rates, n=4)
    print(f"localspec off / llama-server off, {len(rates)} pairs: median {middle:.3f}", end="")
    print(f", quartiles {low:.3f} and {high:.3f}; first token {statistics.median(first):.3f}")


def _report(found: dict[tuple[str, str], list[Answer]], kinds: list[str], names: list[str]) -> None:
    def median(kind: str, name: str, what: str) -> float:
        middle: float = statistics.median(getattr(answer, what) for answer in found[kind, name])
        return middle

    def ratio(ours: str, theirs: str, what: str) -> float:
        """Return the geometric mean over kinds of the median ratio of neighbouring runs."""
        means: float = geometric_mean(
            [
                statistics.median(
                    getattr(a, what) / getattr(b, what)
                    for a, b in zip(found[kind, ours], found[kind, theirs], strict=True)
                )
                for kind in kinds
            ]
        )
        return means

    for what in ("tokens_per_s", "first_token_s"):
        print(f"\n{what:16}" + "".join(f"{kind:>12}" for kind in kinds))
        for name in names:
            print(f"{name:16}" + "".join(f"{median(k, name, what):12.3f}" for k in kinds))
    print("\nacceptance      " + "".join(f"{kind:>12}" for kind in kinds))
    for name in ("server draft", "localspec draft"):
        accepted = [found[kind, name][0].acceptance_rate for kind in kinds]
        if None in accepted:
            raise SystemExit(f"{name} drafted nothing: the comparison would be of something else")
        print(f"{name:16}" + "".join(f"{rate:12.3f}" for rate in accepted))
    plain, draft = "localspec off", "localspec draft"
    print(f"\n{plain} / server off: {ratio(plain, 'server off', 'tokens_per_s'):.3f} (0.98)")
    print(f"{draft} / server draft: {ratio(draft, 'server draft', 'tokens_per_s'):.3f} (1.15)")
    first = ratio(plain, "server off", "first_token_s")
    print(f"first token, {plain} / server off: {first:.3f} (at most 1.05)")
    for name in ("localspec off", "localspec draft"):
        answers = [a for k in kinds for a in found[k, name]]
        sample = statistics.median(a.sample_share for a in answers)
        other = statistics.median(a.other_share for a in answers)
        print(f"{name}: sample_s {sample:.2%} and other_s {other:.2%} of decode_s")


if __name__ == "__main__":
    main()
