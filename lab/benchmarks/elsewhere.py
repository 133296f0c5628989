"""Same text elsewhere: whether workers answer as this machine's CPU does, and how near a text is to forking where they do not.

    python -m lab.benchmarks.elsewhere [--workers 1] [--model smollm2-135m] [--prompts 60] [--max-tokens 100]
                                   [--default-kernels]

Starts so many workers on this machine, each with its CPU, and has all layers on them. Every prompt is answered greedily
without drafting, here and there. Where texts fork, both evaluate what they have in common: the gap is that between the
two likeliest tokens, in logits, beside how far the two rows are apart at most. Nothing is timed.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import numpy as np

from lab.benchmarks.exact import answer, fork, questions
from lab.benchmarks.workbench import machine, opened
from localspec.chat.conversation import Conversation
from localspec.launch.load import Runtime
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams


@contextmanager
def worker_process(*flags: str) -> Iterator[tuple[str, int]]:
    """Yield the address and the id of a worker with this machine's CPU; `flags` are those of `localspec worker`."""
    command = [sys.executable, "-m", "localspec", "worker", "--listen", "127.0.0.1:0", *flags]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        told = process.stderr.readline()
        found = re.search(r" at (127\.0\.0\.1:\d+);", told)
        assert found, told
        yield found[1], process.pid
    finally:
        process.kill()
        process.wait()


@contextmanager
def worker() -> Iterator[str]:
    """Yield the address of a worker with this machine's CPU."""
    with worker_process() as (address, _):
        yield address


def row(runtime: Runtime, tokens: Sequence[int]) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Return the logits after some tokens, evaluated in the usual chunks."""
    view = runtime.assistant.models.targets.views[0]
    view.truncate(0)
    return np.array(view.logits(tokens, 1)[0], dtype=np.float64)


def gap(one: Runtime, other: Runtime, tokens: Sequence[int]) -> str:
    """Say how near the choice was that they made differently."""
    rows = [row(each, tokens) for each in (one, other)]
    gaps = [float(np.diff(np.partition(each, -2)[-2:])[0]) for each in rows]
    apart = float(np.max(np.abs(rows[0] - rows[1])))
    return f"gap {gaps[0]:.4f} here, {gaps[1]:.4f} there; rows at most {apart:.4f} apart"


def main() -> None:
    """Run, and print a line for each fork and the sum."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--prompts", type=int, default=60)
    parser.add_argument("--max-tokens", type=int, default=100)
    parser.add_argument("--default-kernels", action="store_true")
    flags = parser.parse_args()
    exact = not flags.default_kernels
    options = ReplyOptions(SamplingParams(temperature=0), max_tokens=flags.max_tokens)
    request = LaunchOptions(flags.model, draft="off", exact=exact)
    with ExitStack() as stack:
        addresses = tuple(stack.enter_context(worker()) for _ in range(flags.workers))
        here = opened(replace(request, load=LoadOptions(devices=("CPU",))))
        there = opened(replace(request, workers=addresses))
        for each in (here, there):  # before the workers go
            stack.callback(each.assistant.close)
        print(f"{machine()}; {flags.model} on {len(addresses)} workers; exact: {exact}")
        forks, long = 0, 0
        for number, (system, asked) in enumerate(questions(flags.prompts)):
            one, other = (
                answer(each, "off", system, asked.prompt, options) for each in (here, there)
            )
            long += one.prompt_tokens > 128
            at = fork(one.tokens, other.tokens)
            if at is None:
                continue
            forks += 1
            conversation = Conversation(system)
            conversation.append_user(asked.prompt)
            prompt = here.assistant.prompt_tokens(conversation)
            told = gap(here, there, [*prompt, *one.tokens[:at]])
            print(
                f"{asked.workload} {number}, prompt of {len(prompt)}: forks at {at}: {told}",
                flush=True,
            )
        print(f"{flags.prompts} texts, {long} of prompts above 128 tokens: {forks} forked")


if __name__ == "__main__":
    main()
