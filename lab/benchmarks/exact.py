"""Same bytes: what `--exact` promises, and how often texts fork without it.

    python -m lab.benchmarks.exact [--pair NAME | --target FILE] [--draft-model NAME] [--set NAME=VALUE ...] [--modes off,auto,...] [--prompts 100]
                               [--max-tokens 200] [--threads N] [--default-kernels]

Every prompt is answered in every mode, at temperature 0 and 0.8, each time from an empty cache, and
each answer is compared with that of the first mode, byte for byte. What was accepted is counted by mode, kind of
text and temperature. Nothing is timed: it may run beside other work. The sums until then are printed after every
prompt, so that what is interrupted, killed or crashes has told what it had.
"""

import argparse
import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from lab.benchmarks.workbench import add_settings, forget, machine, opened, with_settings
from localspec.bench.prompts import BenchPrompt, bundled
from localspec.chat.conversation import Conversation
from localspec.chat.events import Reply
from localspec.decoding.stats import AcceptanceStats
from localspec.launch.load import Runtime
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams

TEMPERATURES = (0.0, 0.8)


SYSTEMS = (None, "You are a precise assistant. Answer briefly.")


def questions(count: int) -> list[tuple[str | None, BenchPrompt]]:
    """Return so many prompts, each kind in turn: the bundled ones, then the same with a system prompt."""
    prompts = sorted(enumerate(bundled()), key=lambda numbered: numbered[0] % 10)
    return [(system, prompt) for system in SYSTEMS for _, prompt in prompts][:count]


def answer(
    loaded: Runtime, mode: str, system: str | None, prompt: str, options: ReplyOptions
) -> Reply:
    """Answer from an empty cache, with a policy that remembers nothing."""
    forget(loaded)
    conversation = Conversation(system)
    conversation.append_user(prompt)
    return loaded.assistant.reply(conversation, options, policy=loaded.drafting.policy(mode))


def fork(one: Sequence[int], other: Sequence[int]) -> int | None:
    """Return the index of the first token that differs; None where none does."""
    if tuple(one) == tuple(other):
        return None
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


@dataclass(slots=True)
class Compared:
    """What came of the texts of a mode until now.

    Args:
        mode: its name.
        texts: that were compared.
        drafted: tokens in all of them.
        forks: indices of the tokens from which texts differ; -1 where only the bytes do.
    """

    mode: str
    texts: int = 0
    drafted: int = 0
    forks: list[int] = field(default_factory=list)

    def figures(self) -> dict[str, object]:
        """Return what is printed."""
        return {
            "mode": self.mode,
            "texts": self.texts,
            "differing": len(self.forks),
            "drafted": self.drafted,
            "first_differences": sorted(self.forks),
        }


def main() -> None:
    """Run, and print a line a difference and the sums."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pair")
    parser.add_argument("--target", help="in place of a pair")
    parser.add_argument("--draft-model", help="in place of the pair's own")
    parser.add_argument("--modes", default="off,auto")
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--default-kernels", action="store_true")
    add_settings(parser)
    flags = parser.parse_args()
    modes = flags.modes.split(",")
    request = LaunchOptions(
        flags.pair if flags.pair or flags.target else "smollm2-135m",
        target=flags.target,
        draft_model=flags.draft_model,
        draft=modes[0],
        further=tuple(modes[1:]),
        load=LoadOptions(threads=flags.threads),
        exact=not flags.default_kernels,
    )
    loaded = opened(with_settings(request, flags.set))
    for note in loaded.assistant.notes:
        print(note)
    print(
        f"{machine()}; {flags.target or request.pair}; exact: {request.exact}; longest draft {loaded.drafting.longest}"
    )
    sums = {mode: Compared(mode) for mode in modes[1:]}
    accepted: dict[tuple[str, str, float], AcceptanceStats] = {}
    start = time.monotonic()

    def ask(number: int, system: str | None, asked: BenchPrompt, temperature: float) -> None:
        """Answer one prompt in every mode, and count."""
        options = ReplyOptions(
            SamplingParams(temperature=temperature), seed=number, max_tokens=flags.max_tokens
        )
        plain = answer(loaded, modes[0], system, asked.prompt, options)
        for mode in modes[1:]:
            reply = answer(loaded, mode, system, asked.prompt, options)
            sums[mode].texts += 1
            sums[mode].drafted += reply.acceptance.drafted
            kind = mode, asked.workload, temperature
            counts = accepted.setdefault(kind, AcceptanceStats())
            counts.rounds += reply.acceptance.rounds
            counts.drafted += reply.acceptance.drafted
            counts.accepted += reply.acceptance.accepted
            counts.confirmed += reply.acceptance.confirmed
            at = fork(plain.tokens, reply.tokens)
            if at is not None or reply.text != plain.text:
                sums[mode].forks.append(-1 if at is None else at)
                print(
                    f"{asked.workload} {number} at {temperature}, {mode}: differs from token {at}",
                    flush=True,
                )

    with suppress(KeyboardInterrupt):
        for number, (system, asked) in enumerate(questions(flags.prompts)):
            for temperature in TEMPERATURES:
                ask(number, system, asked, temperature)
                for its in sums.values():
                    print(json.dumps(its.figures()), flush=True)
            if number % 10 == 9:
                print(f"{number + 1} prompts, {time.monotonic() - start:.0f} s", flush=True)
    for (mode, workload, temperature), counts in accepted.items():
        rate, length = counts.acceptance_rate, counts.mean_acceptance_length
        said = "nothing drafted" if rate is None else f"{rate:.3f} of {counts.drafted} accepted"
        print(f"{mode} {workload} at {temperature}: {said}, {length or 1:.2f} tokens a pass")


if __name__ == "__main__":
    main()
