"""Same text: in how many answers drafting changes a token, here and in llama-server, on the same files.

    python -m lab.same_text OUT.jsonl [--pair NAME | --target FILE [--draft-model NAME]] [--modes off,auto,model:3]
        [--kernels default,exact] [--prompts 30] [--max-tokens 400] [--temperatures 0,0.8] [--server PATH/llama-server]
        [--set NAME=VALUE ...]

Every prompt is answered in every mode, each time from an empty cache and with a policy that remembers nothing, and compared
token by token with the answer of the first mode. With `--server`, llama-server's modes are compared with its own answer
without a draft, greedily. Nothing is timed: it may run beside other work. Every answer is appended to OUT.jsonl, and a
second call continues behind the last one. After every prompt the counts until then are printed, one JSON object a mode.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from lab.benchmarks.workbench import add_settings, with_settings
from lab.peers import PeerRuns, server_program
from localspec.launch.load import load
from localspec.options import LaunchOptions, ReplyOptions
from localspec.plan.make import make_plan
from localspec.plugins.bench.bench import BenchModels
from localspec.plugins.bench.measure import OwnRuns, Runs, prompt_tokens
from localspec.plugins.bench.prompts import BenchPrompt, bundled
from localspec.plugins.bench.trial import Slot, fork

SERVER_MODES = ("server:none", "server:draft", "server:ngram-simple", "server:ngram-mod")


class Answer(NamedTuple):
    """One answer: what it is of, the ids of its tokens, and how many were drafted."""

    subject: str
    kernels: str
    mode: str
    temperature: float
    prompt: int
    tokens: list[int]
    drafted: int


def read(path: Path) -> list[Answer]:
    """Return the answers of a file; none if there is no file."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [Answer(*json.loads(line)) for line in lines]


def some_prompts(count: int) -> list[BenchPrompt]:
    """Return bundled prompts, each of the six kinds in turn."""
    ordered = sorted(enumerate(bundled()), key=lambda numbered: numbered[0] % 10)
    return [prompt for _, prompt in ordered][:count]


@contextmanager
def opened_runs(
    launch: LaunchOptions,
    prompts: Sequence[BenchPrompt],
    reply: ReplyOptions,
    server: Path | None,
) -> Iterator[Runs]:
    """Load what is asked for, and give what answers prompts with it: ourselves, or a llama-server with the same files."""
    plan = make_plan(launch)
    runtime = load(plan)
    with closing(runtime.assistant):
        if server is None:
            yield OwnRuns(runtime.assistant, runtime.drafting.policy, prompts, reply)
            return
        loaded = BenchModels(plan, runtime.assistant)
        tokens = prompt_tokens(runtime.assistant, prompts)
        with closing(PeerRuns(server, loaded, tokens, reply)) as runs:
            yield runs


def counts(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """Return for each mode how many texts differ from the first mode's, and the first tokens in which they do."""
    first: dict[tuple[object, ...], list[int]] = {}
    rows: dict[tuple[object, ...], dict[str, Any]] = {}
    for each in answers:
        place = (each.subject, each.kernels, each.temperature, each.prompt)
        plain = first.setdefault(place, each.tokens)
        row = rows.setdefault(
            (each.subject, each.kernels, each.mode, each.temperature),
            {
                **dict(zip(Answer._fields[:4], each[:4], strict=True)),
                "texts": 0,
                "differing": 0,
                "drafted": 0,
                "first_differences": [],
            },
        )
        at = fork(each.tokens, plain)
        row["texts"] += 1
        row["drafted"] += each.drafted
        row["differing"] += at is not None
        row["first_differences"] += [] if at is None else [at]
    return list(rows.values())


def main() -> None:
    """Answer what is missing, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--pair")
    parser.add_argument("--target", help="in place of a pair")
    parser.add_argument("--draft-model", help="in place of the pair's own")
    parser.add_argument("--modes", default="off,auto,model:3")
    parser.add_argument("--kernels", default="default,exact")
    parser.add_argument("--prompts", type=int, default=30)
    parser.add_argument("--max-tokens", type=int, default=400)
    parser.add_argument("--temperatures", default="0,0.8")
    parser.add_argument("--server", help="llama-server")
    add_settings(parser)
    flags = parser.parse_args()
    modes, prompts = flags.modes.split(","), some_prompts(flags.prompts)
    pair = flags.pair if flags.pair or flags.target else "smollm2-135m"
    launch = LaunchOptions(
        pair,
        target=flags.target,
        draft_model=flags.draft_model,
        draft=modes[0],
        further=tuple(modes[1:]),
    )
    launch = with_settings(launch, flags.set)
    subject = pair or Path(flags.target).stem
    temperatures = [float(each) for each in flags.temperatures.split(",")]
    stages = [(each, modes, temperatures) for each in flags.kernels.split(",") if each]
    if flags.server:
        stages.append(("server", [*SERVER_MODES], [0.0]))
    answers = read(flags.out)
    done = {each[:5] for each in answers}
    for kernels, its_modes, its_temperatures in stages:
        todo = [
            Slot(prompt, temperature, 0, mode, 0)
            for prompt in range(len(prompts))
            for temperature in its_temperatures
            for mode in its_modes
            if (subject, kernels, mode, temperature, prompt) not in done
        ]
        if not todo:
            continue
        own = replace(launch, exact=kernels == "exact")
        server = server_program(flags.server) if kernels == "server" else None
        reply = ReplyOptions(max_tokens=flags.max_tokens)
        with opened_runs(own, prompts, reply, server) as runs, flags.out.open("a") as out:
            for slot in todo:
                trial = runs.run(slot)
                place = (subject, kernels, slot.mode, slot.temperature, slot.prompt)
                answers.append(Answer(*place, [*trial.tokens], trial.drafted))
                print(json.dumps(answers[-1]), file=out, flush=True)
                if slot.mode == its_modes[-1]:
                    print_counts(answers)
    print_counts(answers)


def print_counts(answers: Sequence[Answer]) -> None:
    """Print one JSON object a mode."""
    print("\n".join(json.dumps(each) for each in counts(answers)), flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
