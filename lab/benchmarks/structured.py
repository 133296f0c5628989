"""Answers under JSON schemas: do they validate, what does drafting gain, what does the grammar cost.

    python -m lab.benchmarks.structured [--pair smollm2-135m | --target FILE [--draft-model FILE]]
        [--seeds 10] [--modes off,auto] [--only tree,person] [--schema-in-prompt] [--exact] [--cost]
        [--threads N] [--save FILE]

The tests' twenty schemas, each asked with so many seeds, by each drafting mode in turn. Every answer that ends
by itself is validated with jsonschema; one that is cut at --max-tokens is counted apart. Under --exact
the modes' texts are compared, too. --cost measures what the grammar adds to choosing from a row. --save
appends each answer to a file of JSON lines, for whoever wants to look at them or count something.
"""

import argparse
import json
import statistics
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import jsonschema
import numpy as np

from lab.benchmarks.workbench import forget, machine, opened
from localspec.chat.assistant import Assistant
from localspec.chat.events import Reply
from localspec.decoding.choose import Chooser
from localspec.decoding.constraint import AnswerConstraint
from localspec.decoding.noise import Noise
from localspec.decoding.round import StopReason
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from tests.grammar.schemas import ASKED, Asked

SCHEMAS = ASKED


@dataclass(slots=True)
class Tally:
    """What the answers of one drafting mode came to."""

    answers: int = 0
    cut: list[str] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)
    tokens: int = 0
    decode_s: float = 0.0
    sample_s: float = 0.0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    rates: list[float] = field(default_factory=list)

    def add(self, reply: Reply, asked: Asked) -> None:
        """Count one answer."""
        self.answers += 1
        self.tokens += reply.completion_tokens - 1
        self.decode_s += reply.decode_s
        self.sample_s += reply.spent.sample_s
        self.rounds += reply.acceptance.rounds
        self.drafted += reply.acceptance.drafted
        self.accepted += reply.acceptance.accepted
        if reply.tokens_per_s is not None:
            self.rates.append(reply.tokens_per_s)
        if reply.stop_reason is not StopReason.EOG:
            self.cut.append(asked.name)
            return
        try:
            checker = jsonschema.FormatChecker()
            jsonschema.Draft202012Validator(asked.schema, format_checker=checker).validate(
                json.loads(reply.text)
            )
        except (ValueError, jsonschema.ValidationError) as error:
            self.invalid.append(f"{asked.name}: {reply.text!r}: {str(error).splitlines()[0]}")

    def line(self, mode: str) -> str:
        """Return it for people."""
        rate = self.tokens / self.decode_s if self.decode_s else 0.0
        accepted = f"{self.accepted / self.drafted:.1%}" if self.drafted else "-"
        return (
            f"{mode:8} {self.answers} answers, {self.answers - len(self.cut) - len(self.invalid)} valid, "
            f"{len(self.invalid)} invalid, {len(self.cut)} cut; {rate:.1f} tokens/s "
            f"(median of answers {statistics.median(self.rates):.1f}); "
            f"accepted {self.accepted} of {self.drafted} ({accepted}); "
            f"{1000 * self.sample_s / max(1, self.rounds):.2f} ms a round for choosing"
        )

    def tell(self, mode: str) -> None:
        """Print it, and every answer that is not as it should be."""
        print(self.line(mode))
        if self.cut:
            print("  cut:", ", ".join(self.cut))
        for each in self.invalid:
            print("  INVALID", each)


def question(asked: Asked, *, with_schema: bool) -> str:
    """Return what the model is asked."""
    if not with_schema:
        return asked.prompt
    return f"{asked.prompt}\n\nAnswer with JSON that is valid under this schema:\n{json.dumps(asked.schema)}"


def cost(assistant: Assistant, asked: Asked, text: str) -> list[tuple[float, float]]:
    """Return the seconds that choosing took without and with the grammar, at each place of an answer."""
    models = assistant.models
    vocabulary = models.tokenizer
    assert models.grammar is not None
    prompt = vocabulary.tokenize(asked.prompt, add_special=True, parse_special=False)
    ids = vocabulary.tokenize(text, add_special=False, parse_special=False)
    automaton = models.grammar(ReplyOptions(json_schema=asked.schema))
    constraint = AnswerConstraint(automaton, len(prompt))
    free = Chooser(SamplingParams(), Noise(1))
    bound = Chooser(SamplingParams(), Noise(1), constraint)
    found = []
    models.target.truncate(0)
    for end in range(len(ids)):
        before = [*prompt, *ids[:end]]
        row = models.target.logits(before, rows=1)[0].copy()
        times = []
        for chooser in (free, bound):
            started = time.perf_counter()
            chooser.choose(row, before)
            times.append(time.perf_counter() - started)
        found.append((times[0], times[1]))
    return found


def save(path: Path, mode: str, seed: int, asked: Asked, reply: Reply) -> None:
    """Append one answer."""
    record = {
        "mode": mode,
        "seed": seed,
        "schema": asked.name,
        "tokens": list(reply.tokens),
        "text": reply.text,
        "stop_reason": reply.stop_reason.value,
        "rounds": reply.acceptance.rounds,
    }
    with path.open("a") as file:
        file.write(f"{json.dumps(record)}\n")


def asked_for() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pair")
    parser.add_argument("--target")
    parser.add_argument("--draft-model")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--modes", default="off,auto")
    parser.add_argument("--max-tokens", type=int, default=600)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--only", help="names of schemas, with commas")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--schema-in-prompt", action="store_true")
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--threads", type=int)
    return parser.parse_args()


def main() -> None:
    """Ask, validate, compare, print."""
    args = asked_for()
    modes = args.modes.split(",")
    launch = LaunchOptions(
        pair=args.pair or (None if args.target else "smollm2-135m"),
        target=args.target,
        draft_model=args.draft_model,
        draft=modes[0],
        further=tuple(modes[1:]),
        load=LoadOptions(n_ctx=4096, threads=args.threads),
        exact=args.exact,
        fit=False,
    )
    loaded = opened(launch)
    assistant, drafting = loaded.assistant, loaded.drafting
    policies = {mode: drafting.policy(mode) for mode in modes}
    print(f"{machine()}; {assistant.models.target_name}; temperature {args.temperature}")
    tallies: dict[str, Tally] = defaultdict(Tally)
    unequal = 0
    spent: list[tuple[float, float]] = []
    names = args.only.split(",") if args.only else [each.name for each in SCHEMAS]
    wanted = [(index, each) for index, each in enumerate(SCHEMAS) if each.name in names]
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        for index, asked in wanted:
            texts = set()
            # The modes take turns in going first: what warms up favours nobody.
            for mode in modes if (index + seed) % 2 else reversed(modes):
                forget(loaded)
                options = ReplyOptions(
                    SamplingParams(temperature=args.temperature),
                    seed=1000 * seed + index,
                    max_tokens=args.max_tokens,
                    json_schema=asked.schema,
                )
                prompt = question(asked, with_schema=args.schema_in_prompt)
                reply = assistant.reply(prompt, options, policy=policies[mode])
                tallies[mode].add(reply, asked)
                if args.save is not None:
                    save(args.save, mode, seed, asked, reply)
                texts.add(reply.text)
            unequal += len(texts) > 1
            if args.cost and seed == args.first_seed:
                spent += cost(assistant, asked, texts.pop())
    for mode in modes:
        tallies[mode].tell(mode)
    print(f"texts that differ between modes: {unequal} of {args.seeds * len(wanted)}")
    if spent:
        free, bound = np.array(spent).T * 1000
        extra = bound - free
        print(
            f"{len(spent)} rows of {assistant.models.target.n_vocab} logits: choosing takes {np.median(free):.3f} ms without a "
            f"grammar, {np.median(bound):.3f} with one (median; mean {bound.mean():.3f}, 95 % below "
            f"{np.quantile(bound, 0.95):.3f}); it adds {np.median(extra):.3f} ms"
        )
    assistant.close()


if __name__ == "__main__":
    main()
