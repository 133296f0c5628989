"""How long a prompt of 2,000 tokens holds up three answers that are under way.

    python -m lab.benchmarks.hold_up [--pair NAME] [--tokens 2000] [--rounds 3] [--threads N] [--sizes 16,32,128]

Three short prompts are answered in parallel; then a long one arrives. Told are the time from one round
to the next of those three, before it and while its prompt is evaluated, how long the steps with a chunk
of it take, and its own time beside the others to its time alone, in turns. Before that: what chunks of
these sizes cost a prompt of 384 tokens that nobody is beside, in turns.
"""

import argparse
import statistics
import time
from dataclasses import dataclass, field, replace

from lab.benchmarks.workbench import forget, machine, opened
from localspec.chat.assistant import Assistant
from localspec.chat.events import Event, Finished, Prefilling, RequestFailed, RoundDone
from localspec.chat.requests import Request
from localspec.decoding.model import Pass, Role
from localspec.launch.load import HOLD_UP_S, Runtime
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams

_GREEDY = ReplyOptions(SamplingParams(temperature=0), max_tokens=400, seed=1)
_LONG = 100
_SETTLED = 60
_CHUNKED = 384


def prompt_of(runtime: Runtime, tokens: int) -> str:
    """Return a text of about so many tokens."""
    words = [f"item {number} costs {number * 37 % 101} coins;" for number in range(tokens)]
    tokenizer = runtime.assistant.models.tokenizer
    low, high = 1, len(words)
    while low < high:
        middle = (low + high + 1) // 2
        ids = tokenizer.tokenize(" ".join(words[:middle]), add_special=True, parse_special=False)
        low, high = (middle, high) if len(ids) <= tokens else (low, middle - 1)
    return " ".join(words[:low])


def chunked(runtime: Runtime, prompt: str, sizes: list[int], rounds: int) -> None:
    """Tell what a prompt costs that is evaluated in chunks of some sizes; the last size is the measure."""
    models = runtime.assistant.models
    tokenizer = models.tokenizer
    ids = tokenizer.tokenize(prompt, add_special=True, parse_special=False)[: _CHUNKED + 1]
    request = Pass(Role.TARGET, ids, rows=1)
    took: dict[int, list[float]] = {size: [] for size in sizes}
    for number in range(rounds):
        for size in sizes if number % 2 else sizes[::-1]:
            forget(runtime)
            start = time.perf_counter()
            for at in range(0, _CHUNKED, size):
                models.targets.evaluate(0, request, min(size, _CHUNKED - at))
            took[size].append(time.perf_counter() - start)
    for size in sizes:
        chunk_ms = 1000 * statistics.median(took[size]) * size / _CHUNKED
        share = statistics.median(a / b for a, b in zip(took[size], took[sizes[-1]], strict=True))
        print(f"chunks of {size}: {chunk_ms:.0f} ms each, {share:.3f} of the time of {sizes[-1]}")


def alone_s(runtime: Runtime, prompt: str) -> float:
    """Return the seconds of a prompt that nobody is beside."""
    forget(runtime)
    return runtime.assistant.reply(prompt, replace(_GREEDY, max_tokens=1), raw=True).prefill_s


@dataclass(slots=True)
class Watch:
    """What a step brought.

    Args:
        last: when each of the others had its last round.
        gaps: seconds between rounds of the others.
        chunks: seconds of the steps in which a chunk of the long prompt was evaluated.
        own_s: what the long prompt took; 0 until it is done.
    """

    last: dict[int, float] = field(default_factory=dict)
    gaps: list[float] = field(default_factory=list)
    chunks: list[float] = field(default_factory=list)
    own_s: float = 0.0

    def step(self, assistant: Assistant) -> None:
        """Make a step."""
        start = time.perf_counter()
        assistant.step()
        now = time.perf_counter()
        for key, event in assistant.take():
            if isinstance(event, RequestFailed):
                raise SystemExit(f"request {key}: {event.error}")
            if key == _LONG:
                self._of_long(event, now - start)
            elif isinstance(event, RoundDone):
                self.gaps += [now - self.last[key]] if key in self.last else []
                self.last[key] = now

    def _of_long(self, event: Event, took_s: float) -> None:
        if isinstance(event, Prefilling):
            self.chunks.append(took_s)
        elif isinstance(event, Finished):
            self.own_s = event.reply.prefill_s


def beside(runtime: Runtime, prompt: str) -> tuple[list[float], Watch]:
    """Return the gaps of others before a prompt, and what was seen while it was evaluated."""
    assistant = runtime.assistant
    forget(runtime)
    asked = ("Tell a long story.", "Count to a thousand.", "List all countries.")
    for key, question in enumerate(asked):
        assistant.submit(Request(key, question, _GREEDY))
    before = Watch()
    while len(before.last) < len(asked) or len(before.gaps) < _SETTLED:
        before.step(assistant)
    during = Watch(dict(before.last))
    assistant.submit(Request(_LONG, prompt, replace(_GREEDY, max_tokens=1), raw=True))
    while not during.own_s:
        during.step(assistant)
    for key in range(len(asked)):
        assistant.drop(key)
    return before.gaps, during


def told(seconds: list[float]) -> str:
    """Return a distribution in milliseconds."""
    ordered = sorted(seconds)
    ninth = ordered[int(0.9 * (len(ordered) - 1))]
    return (
        f"median {1000 * statistics.median(ordered):.0f}, 90 % {1000 * ninth:.0f}, "
        f"most {1000 * ordered[-1]:.0f} ms ({len(ordered)})"
    )


def main() -> None:
    """Measure in turns, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pair", default="qwen2.5-coder-1.5b")
    parser.add_argument("--draft", default="off")
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--sizes", default="16,32,64,128")
    asked = parser.parse_args()
    load = LoadOptions(threads=asked.threads, n_ctx=asked.tokens + 512)
    runtime = opened(
        LaunchOptions(asked.pair, draft=asked.draft, load=load), parallel=4, hold_up_s=HOLD_UP_S
    )
    prompt = prompt_of(runtime, asked.tokens)
    print(f"{machine()}; {asked.pair}; {runtime.assistant.notes}", flush=True)
    chunked(runtime, prompt, [int(size) for size in asked.sizes.split(",")], asked.rounds + 1)
    shares = []
    for _ in range(asked.rounds):
        lone = alone_s(runtime, prompt)
        before, during = beside(runtime, prompt)
        shares.append(during.own_s / lone)
        print(f"rounds of others before: {told(before)}; during: {told(during.gaps)}")
        print(
            f"  a chunk and its round: {told(during.chunks)}; the prompt {during.own_s:.2f} s, alone {lone:.2f} s: {shares[-1]:.3f}",
            flush=True,
        )
    print(f"median of its own time to its time alone: {statistics.median(shares):.3f}")
    runtime.assistant.close()


if __name__ == "__main__":
    main()
