"""Several at once: tokens per second of short prompts, one at a time and in parallel, beside llama-batched-bench.

    python -m lab.benchmarks.parallel [--pair NAME] [--parallel N] [--draft off|auto] [--max-tokens 64] [--threads N]
                                  [--rounds 3] [--peer PATH/llama-batched-bench] [--skip-alone]

Greedy. Prompts are answered one at a time, then in parallel, in turns; tokens per second count everything
between the first request and the last answer. The decode phase is what lies between two merged passes of
full width that follow each other: the pass, every choice, and this program's own work. llama-batched-bench
runs as many sequences, with the same threads, batch and attention, and nothing but passes.
"""

import argparse
import json
import statistics
import subprocess
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from localspec.decoding.schedule import Sequences
from localspec.parallel import open_parallel

from lab.benchmarks.workbench import machine
from localspec.chat.conversation import Conversation
from localspec.chat.requests import Answered, Answerer, OneAtATime, Request
from localspec.decoding.model import LanguageModel, Logits, Pass
from localspec.launch import prepare
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams

_WORDS = (
    "rivers bridges clocks maps bread salt iron glass wool paper ink sails anchors tides storms snow "
    "wells gardens orchards bees owls wolves whales moss ferns oaks deserts islands volcanoes caves "
    "comets eclipses telescopes prisms magnets batteries engines pumps gears wheels roads tunnels "
    "harbours lighthouses markets coins letters alphabets songs drums violins masks theatres "
    "libraries museums stadiums kites balloons bicycles trains canals windmills looms kilns forges"
)
TOPICS = _WORDS.split()


def requests(count: int, max_tokens: int) -> Iterator[Request]:
    """Yield short prompts, each with a seed of its own."""
    for key, topic in enumerate(TOPICS[:count]):
        conversation = Conversation()
        conversation.append_user(f"Tell me something about {topic}.")
        sampling = SamplingParams(temperature=0)
        yield Request(key, conversation, ReplyOptions(sampling, seed=key, max_tokens=max_tokens))


@dataclass(slots=True, eq=False)
class Clocked:
    """Sequences whose merged passes are timed, from the end of one to the end of the next."""

    within: Sequences
    seconds: list[float] = field(default_factory=list)
    in_pass_s: list[float] = field(default_factory=list)
    _before: float | None = None
    _evaluated: int = 0

    @property
    def views(self) -> Sequence[LanguageModel]:
        """Return those within."""
        return self.within.views

    @property
    def most_rows(self) -> int:
        """Return that of those within."""
        return self.within.most_rows

    def ready(self, place: int, request: Pass) -> bool:
        """Return what those within say."""
        return self.within.ready(place, request)

    def close_ranks(self, running: Collection[int]) -> None:
        """Let those within do it; a round with a gap, or with other work, does not count."""
        if len(running) < len(self.within.views):
            self._before = None
        self.within.close_ranks(running)

    def together(self, asked: Sequence[tuple[int, Pass]]) -> Sequence[Logits]:
        """Let those within do it, and note when."""
        start = time.perf_counter()
        answers = self.within.together(asked)
        now = time.perf_counter()
        evaluated = sum(len(request.tokens) for _, request in asked)
        rows = sum(request.rows for _, request in asked)
        full = len(asked) == rows == len(self.within.views)
        # Where every text is one token longer than before, nothing else was evaluated.
        if full and self._before is not None and evaluated == self._evaluated + rows:
            self.seconds.append(now - self._before)
            self.in_pass_s.append(now - start)
        self._before, self._evaluated = (now, evaluated) if full else (None, 0)
        return answers


def timed(answerer: Answerer, count: int, max_tokens: int) -> tuple[float, list[Answered]]:
    """Return tokens per second, and the answers."""
    start = time.perf_counter()
    answered = list(answerer.answer(requests(count, max_tokens)))
    took_s = time.perf_counter() - start
    return sum(each.reply.completion_tokens for each in answered if each.reply) / took_s, answered


def peer(
    path: str, model: str, count: int, prompt: int, generated: int, threads: int | None
) -> dict[str, float]:
    """Return tokens per second of llama-batched-bench, decoding, with each of its attentions."""
    command = [path, "-m", model, "-c", str(count * 512), "-b", "128", "-ub", "128"]
    command += ["-npp", str(prompt), "-ntg", str(generated), "-npl", str(count)]
    command += ["--output-format", "jsonl", "-ngl", "0"]
    if threads is not None:
        command += ["-t", str(threads), "-tb", str(threads)]
    rates: dict[str, float] = {}
    for attention in ("on", "off"):
        run = subprocess.run(
            [*command, "-fa", attention], capture_output=True, text=True, check=True
        )
        lines = [line for line in (run.stdout + run.stderr).splitlines() if line.startswith("{")]
        rates[f"peer_flash_{attention}"] = json.loads(lines[-1])["speed_tg"]
    return rates


def main() -> None:
    """Run, and print a line a round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pair", default="smollm2-135m")
    parser.add_argument("--parallel", type=int)
    parser.add_argument("--draft", default="auto")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--ctx", type=int, default=512)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer")
    parser.add_argument("--skip-alone", action="store_true")
    flags = parser.parse_args()
    options = LoadOptions(threads=flags.threads, n_ctx=flags.ctx)
    prepared = prepare(LaunchOptions(flags.pair, draft=flags.draft, load=options))
    print(f"{machine()}; {flags.pair}; draft {flags.draft}", flush=True)
    parallel = open_parallel(prepared, flags.parallel)
    print(*parallel.notes, sep="; ", flush=True)
    alone = None if flags.skip_alone else OneAtATime(prepared.load())
    for _ in range(flags.rounds):
        line: dict[str, float] = {"count": parallel.count}
        if alone is not None:
            line["alone"], _answers = timed(alone, flags.count, flags.max_tokens)
        clocked = Clocked(parallel.sequences)
        parallel.sequences = clocked
        line["parallel"], answers = timed(parallel, flags.count, flags.max_tokens)
        parallel.sequences = clocked.within
        replies = [each.reply for each in answers if each.reply]
        prompt = round(statistics.mean(reply.prompt_tokens for reply in replies))
        line["prompt"], line["tokens"] = prompt, sum(reply.completion_tokens for reply in replies)
        line["decode"] = parallel.count * len(clocked.seconds) / sum(clocked.seconds)
        line["pass_ms"] = 1000 * statistics.median(clocked.in_pass_s)
        line["round_ms"] = 1000 * statistics.median(clocked.seconds)
        if flags.peer:
            path = str(prepared.target)
            count, longest = parallel.count, flags.max_tokens
            rates = peer(flags.peer, path, count, prompt, longest, flags.threads)
            line |= rates
            line["of_peer"] = line["decode"] / max(rates.values())
        if alone is not None:
            line["gain"] = line["parallel"] / line["alone"]
        print(json.dumps({name: round(value, 3) for name, value in line.items()}), flush=True)


if __name__ == "__main__":
    main()
