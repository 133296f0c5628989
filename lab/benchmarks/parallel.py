"""Several at once: tokens per second with and without drafting, in turns, on models that are loaded once.

    python -m lab.benchmarks.parallel [--pair NAME | --target FILE --draft-model FILE] [--parallel N]
        [--modes off,auto] [--count 16] [--max-tokens 64] [--ctx 1024] [--rounds 5] [--threads N]
        [--temperature 0] [--kinds code,edit] [--exact] [--set NAME=VALUE ...]

Every round answers the same prompts in every mode, the modes in turn; tokens per second count all
that lies between the first request and the last answer, prefill included. The texts of the modes
are compared, too. Ratios are of the second mode to the first, round by round, and their median. A round of short answers
comes first; what there is then, and after every other, is printed, and Ctrl-C ends it with that.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from lab.benchmarks.workbench import add_settings, forget, machine, opened, with_settings
from localspec.chat.events import Finished, RequestFailed
from localspec.chat.request import Request
from localspec.launch.load import Runtime
from localspec.messages import Message
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from localspec.plugins.bench.prompts import bundled

Answered = tuple[float, list[str]]


def requests(asked: argparse.Namespace) -> Iterator[Request]:
    """Yield prompts, the kinds in turn, each with a seed of its own."""
    wanted = asked.kinds.split(",") if asked.kinds else None
    chosen = [each for each in bundled() if wanted is None or each.workload in wanted]
    kinds = len({each.workload for each in chosen})
    each_kind = len(chosen) // kinds
    in_turn = [chosen[kind * each_kind + at] for at in range(each_kind) for kind in range(kinds)]
    sampling = SamplingParams(temperature=asked.temperature)
    for key in range(asked.count):
        question = Message.user(in_turn[key % len(in_turn)].prompt)
        options = ReplyOptions(sampling, seed=key, max_tokens=asked.max_tokens)
        yield Request(key, (question,), options, ephemeral=True)


def answered(runtime: Runtime, mode: str, asked: argparse.Namespace) -> Answered:
    """Return tokens per second, and the texts."""
    assistant = runtime.assistant
    forget(runtime)
    slots = range(assistant.count)
    assistant.policies = tuple(runtime.drafting.policy(mode, slot) for slot in slots)
    texts, tokens, start = [""] * asked.count, 0, time.perf_counter()
    for each in requests(asked):
        assistant.submit(each)
    while assistant.busy:
        assistant.step()
        for key, event in assistant.take():
            if isinstance(event, RequestFailed):
                raise SystemExit(f"prompt {key}: {event.error}")
            if isinstance(event, Finished):
                texts[key] = event.reply.text
                tokens += event.reply.completion_tokens
    return tokens / (time.perf_counter() - start), texts


def tell(runtime: Runtime, modes: Sequence[str], rounds: Sequence[Mapping[str, Answered]]) -> None:
    """Print the medians of rounds, and how many texts of the first and the last mode are the same."""
    first, last = modes[0], modes[-1]
    ratios = [each[last][0] / each[first][0] for each in rounds]
    pairs = [pair for each in rounds for pair in zip(each[first][1], each[last][1], strict=True)]
    figures = {
        "at_once": runtime.assistant.count,
        "tokens_per_s": {
            mode: round(statistics.median(each[mode][0] for each in rounds), 2) for mode in modes
        },
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(each, 3) for each in ratios],
        "texts": len(pairs),
        "same_text": sum(one == other for one, other in pairs),
    }
    print(json.dumps(figures), flush=True)


def main() -> None:
    """Run, and print what there is after every round."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("pair", "target", "draft-model", "kinds"):
        parser.add_argument(f"--{name}")
    numbers = {"parallel": None, "threads": None, "count": 16, "max-tokens": 64, "ctx": 1024}
    for name, default in {**numbers, "rounds": 5}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--modes", default="off,auto")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--exact", action="store_true")
    add_settings(parser)
    asked = parser.parse_args()
    modes = asked.modes.split(",")
    request = LaunchOptions(
        asked.pair,
        target=asked.target,
        draft_model=asked.draft_model,
        draft=modes[0],
        further=tuple(modes[1:]),
        load=LoadOptions(threads=asked.threads, n_ctx=asked.ctx),
        exact=asked.exact,
    )
    runtime = opened(with_settings(request, asked.set), parallel=asked.parallel)
    print(f"{machine()}; {runtime.assistant.count} at once; {runtime.assistant.notes}", flush=True)
    brief = argparse.Namespace(**{**vars(asked), "max_tokens": min(8, asked.max_tokens)})
    found: list[Mapping[str, Answered]] = []
    with suppress(KeyboardInterrupt):
        # What is done first costs more: it is told, and not counted with what follows.
        tell(runtime, modes, [{mode: answered(runtime, mode, brief) for mode in modes}])
        for number in range(asked.rounds):
            order = modes if number % 2 == 0 else modes[::-1]
            found.append({mode: answered(runtime, mode, asked) for mode in order})
            tell(runtime, modes, found)
    runtime.assistant.close()


if __name__ == "__main__":
    main()
