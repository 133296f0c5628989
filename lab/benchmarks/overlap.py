"""Drafting while the target verifies: what it gains over drafting and verifying in turns, with each model on a device of its own.

    python -m lab.benchmarks.overlap [--pair qwen2.5-coder-1.5b] [--lengths 2,4,8] [--prompts code=3,chat=2,edit=1]
                                     [--texts code=10,edit=10,chat=10] [--max-tokens 64]
                                     [--minutes 60] [--default-kernels] [--runs FILE]

Two cores are the two devices: one model is here and the other on a worker of this machine, with a thread each, and the
other way round. While the target verifies, the draft model goes on from its draft and a guess of the bonus token; if all
of it is confirmed, and the bonus is as guessed, that is the next draft, else it is dropped. Beside both, in turns prompt by
prompt: both models here, each with all cores, and the target alone with all cores. Greedy; the first tokens of every arm are
compared.

Counts are exact. Seconds are those that a device works (processor time of a thread or of the worker), put together as if
nothing else ran: a draft ahead takes what it takes beyond the target's pass. The clock on the wall says the same only on a
machine that does nothing else. Of all cores there is only the wall. Ratios are medians over prompts.

Then, from how often the draft model foretells the target's tokens, the same with published costs of GPUs.
"""

import argparse
import json
import statistics
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from lab.benchmarks.elsewhere import worker_process
from lab.benchmarks.overlap_rounds import Answer, Pair
from lab.benchmarks.overlap_worth import RoundSeconds, rounds_of, worth_table
from lab.benchmarks.workbench import machine
from localspec.bench.prompts import BenchPrompt, bundled
from localspec.chat.conversation import Conversation
from localspec.chat.template import ChatTemplate
from localspec.decoding.cancel import CancelFlag
from localspec.launch.plan import make_plan
from localspec.llama.context import LlamaContext
from localspec.llama.model import LlamaModel
from localspec.options import LaunchOptions, LoadOptions
from localspec.tailor.measure import RecordedAnswer, agreement

_CTX, _CHUNK, _CORES = 2048, 128, 2
_OF_A_PROCESS = 2
"""With a process's number, Linux's clock of its processor time; see clock_getcpuclockid(3)."""


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """What was loaded.

    Args:
        pairs: by the names of their placements.
        contexts: of the two that have all cores.
        target: here.
        draft_model: likewise.
        shared_vocab: ids that both have.
    """

    pairs: Mapping[str, Pair]
    contexts: Sequence[LlamaContext]
    target: LlamaModel
    draft_model: LlamaModel
    shared_vocab: int

    def prompt(self, text: str) -> list[int]:
        """Return the tokens of a question."""
        words = self.target.vocabulary
        template = ChatTemplate(self.target.chat_template, words.bos_text, words.eos_text)
        conversation = Conversation()
        conversation.append_user(text)
        return conversation.prompt_tokens(template, words)


DRAFT_AWAY, TARGET_AWAY = "draft model away", "target away"
TOGETHER = "both here, all cores"


@contextmanager
def loaded(name: str, *, exact: bool) -> Iterator[Loaded]:
    """Load both models here and on a worker."""
    with ExitStack() as stack:
        address, process = stack.enter_context(worker_process("--threads", "1"))
        request = LaunchOptions(name, draft="model", workers=(address,), fit=False)
        plan = make_plan(request)
        assert plan.draft_model is not None, f"{name} has a draft model"
        options = LoadOptions(n_ctx=_CTX, threads=1, n_batch=_CHUNK, devices=("cpu",))
        options = options.exact() if exact else options
        away = replace(options, devices=("RPC0",))

        def opened(path: Path, where: LoadOptions) -> LlamaModel:
            model = LlamaModel(path, where)
            stack.callback(model.close)  # before the worker goes
            return model

        big, small = opened(plan.target, options), opened(plan.draft_model, options)
        big_away, small_away = opened(plan.target, away), opened(plan.draft_model, away)

        def contexts(
            target: LlamaModel, draft_model: LlamaModel, threads: int = 1
        ) -> tuple[LlamaContext, LlamaContext]:
            of_target, of_draft = (
                LlamaContext(each, options=replace(each.options, threads=threads))
                for each in (target, draft_model)
            )
            return of_target, of_draft

        all_cores = contexts(big, small, threads=_CORES)
        placed = {
            DRAFT_AWAY: contexts(big, small_away),
            TARGET_AWAY: contexts(big_away, small),
            TOGETHER: all_cores,
        }

        def worker_clock() -> float:
            return time.thread_time() + time.clock_gettime((~process << 3) | _OF_A_PROCESS)

        clocks = {
            DRAFT_AWAY: (time.thread_time, worker_clock),
            TARGET_AWAY: (worker_clock, time.thread_time),
            TOGETHER: (time.perf_counter, time.perf_counter),
        }
        eog = big.vocabulary.eog
        pairs = {
            key: Pair(target, draft_model, plan.shared_vocab, eog, clocks[key])
            for key, (target, draft_model) in placed.items()
        }
        yield Loaded(pairs, all_cores, big, small, plan.shared_vocab)


@dataclass(frozen=True, slots=True)
class Run:
    """One answer, and how it came about."""

    kind: str
    prompt: int
    length: int
    placement: str
    overlapped: bool
    answer: Answer

    @property
    def arm(self) -> tuple[str, int, str, bool]:
        """All but the prompt."""
        return self.kind, self.length, self.placement, self.overlapped


def runs(
    models: Loaded, asked: Sequence[BenchPrompt], lengths: Sequence[int], most: int
) -> Iterator[Run]:
    """Answer every prompt in every arm, one arm after the other, forwards and backwards."""
    arms = [
        (placement, overlapped)
        for placement in (DRAFT_AWAY, TARGET_AWAY)
        for overlapped in (False, True)
    ]
    arms.append((TOGETHER, False))
    with ThreadPoolExecutor(1) as pool:
        for number, prompt in enumerate(asked):
            tokens = models.prompt(prompt.prompt)
            for pair in models.pairs.values():  # evaluates the prompt, and wakes threads
                pair.answer(tokens, 1, 2)
            plans = [(length, *arm) for length in lengths for arm in arms]
            plans += [(0, TOGETHER, False), (0, DRAFT_AWAY, False)]
            for length, placement, overlapped in plans[:: -1 if number % 2 else 1]:
                beside = pool if overlapped else None
                said = models.pairs[placement].answer(tokens, length, most, beside)
                yield Run(prompt.workload, number, length, placement, overlapped, said)


def passes(turns: Answer, beside: Answer) -> RoundSeconds:
    """Return what drafting, one step and the target's pass take: medians, since other programs disturb some."""
    rounds = (*turns.rounds, *beside.rounds)
    return RoundSeconds(
        draft_s=statistics.median(each.draft_s for each in rounds if not each.survived),
        step_s=statistics.median(step_s for each in rounds for step_s in each.ahead_s),
        verify_s=statistics.median(each.verify_s for each in rounds),
    )


HEADS = (
    *("kind", "k", "prompts", "rounds", "accepted", "survive", "placement"),
    *("draft, ms", "step", "target's pass", "pass beside", "gain by passes", "gain", "on the wall"),
    *("tokens/s", "plain, one core", "wall: overlapped", "in turns, all cores", "plain, all cores"),
)


def table(done: Sequence[Run]) -> list[str]:
    """Return lines of a table: a row for each kind, length and placement; counts are sums over prompts, the rest medians."""
    found = {(*run.arm, run.prompt): run.answer for run in done}
    plain = {(run.prompt, run.placement): run.answer for run in done if not run.length}
    rows: dict[tuple[str, int, str], list[tuple[Answer, ...]]] = {}
    for run in (each for each in done if each.overlapped):
        others = (
            found.get((run.kind, run.length, placement, False, run.prompt))
            for placement in (run.placement, TOGETHER)
        )
        alone = (plain.get((run.prompt, placement)) for placement in (DRAFT_AWAY, TOGETHER))
        answers = [run.answer, *others, *alone]
        whole = tuple(each for each in answers if each is not None)
        if len(whole) == len(answers):
            rows.setdefault((run.kind, run.length, run.placement), []).append(whole)
    lines = [f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|"]
    for (kind, length, placement), of_row in rows.items():
        rounds = [each for answer, *_ in of_row for each in answer.rounds]
        accepted = sum(each.accepted for each in rounds) / sum(each.drafted for each in rounds)
        survived = statistics.mean(each.survived for each in rounds)
        cells = [kind, f"{length}", f"{len(of_row)}", f"{len(rounds)}"]
        cells += [f"{accepted:.2f}", f"{survived:.2f}", placement]
        columns = zip(*(_ratios(*answers) for answers in of_row), strict=True)
        cells += [f"{statistics.median(column):.3g}" for column in columns]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _ratios(
    beside: Answer, turns: Answer, together: Answer, one_core: Answer, all_cores: Answer
) -> tuple[float, ...]:
    took = passes(turns, beside)
    return (
        1000 * took.draft_s,
        1000 * took.step_s,
        1000 * took.verify_s,
        beside.mean("verify_s") / turns.mean("verify_s"),
        took.gain(beside.mean("survived")),
        beside.speed / turns.speed,
        beside.wall_speed / turns.wall_speed,
        beside.speed,
        one_core.speed,
        beside.wall_speed,
        together.wall_speed,
        all_cores.wall_speed,
    )


def differences(done: Sequence[Run], most: int, eog: Collection[int]) -> Iterator[str]:
    """Yield a line for each arm whose text is not that of the target alone, or whose rounds are not those in turns."""

    def text(answer: Answer) -> tuple[int, ...]:
        ends = [at + 1 for at, token in enumerate(answer.tokens) if token in eog]
        return answer.tokens[: min([most, *ends])]

    plain = {run.prompt: run.answer for run in done if not run.length}
    turns = {(run.arm, run.prompt): run.answer for run in done}
    for run in done:
        alone = plain.get(run.prompt, run.answer)
        other = turns.get(((*run.arm[:3], False), run.prompt), run.answer)
        if text(alone) != text(run.answer):
            yield f"another text than the target's alone: {run.arm}, prompt {run.prompt}"
        if other.tokens != run.answer.tokens or len(other.rounds) != len(run.answer.rounds):
            yield f"other rounds than in turns: {run.arm}, prompt {run.prompt}"


def hits(models: Loaded, asked: Sequence[BenchPrompt], most: int) -> dict[str, list[list[bool]]]:
    """Return by kind, of each token of the target's answers, whether the draft model foretells it."""
    texts = []
    for prompt in asked:
        tokens = models.prompt(prompt.prompt)
        said = models.pairs[TOGETHER].answer(tokens, 0, most).tokens
        texts.append(RecordedAnswer(prompt.workload, tokens, list(said)))
    found = agreement(models.draft_model, texts, models.shared_vocab, CancelFlag())
    return {kind: [list(each) for each in hits] for kind, hits in found.items()}


def main() -> None:
    """Answer, and print tables; Ctrl-C goes on to them with what there is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pair", default="qwen2.5-coder-1.5b")
    parser.add_argument("--lengths", default="2,4,8")
    parser.add_argument("--prompts", default="code=3,chat=2,edit=1")
    parser.add_argument(
        "--texts", default="code=10,edit=10,chat=10", help="of which agreement is counted"
    )
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--minutes", type=float, default=60, help="no answer begins after them")
    parser.add_argument("--default-kernels", action="store_true")
    parser.add_argument("--runs", type=Path, help="a line of JSON is written here for each answer")
    flags = parser.parse_args()
    lengths = [int(each) for each in flags.lengths.split(",")]
    asked = chosen(flags.prompts)
    print(f"{machine()}; {flags.pair}; exact kernels: {not flags.default_kernels}", flush=True)
    done: list[Run] = []
    ends_s = time.monotonic() + 60 * flags.minutes
    with loaded(flags.pair, exact=not flags.default_kernels) as models:
        with suppress(KeyboardInterrupt):
            for run in runs(models, asked, lengths, flags.max_tokens):
                done.append(run)
                told = f"{run.answer.speed:.2f} tokens/s, on the wall {run.answer.wall_speed:.2f}"
                print(*run.arm, f"prompt {run.prompt}: {told}", flush=True)
                if flags.runs is not None:
                    with flags.runs.open("a") as file:
                        file.write(json.dumps(asdict(run)) + "\n")
                if time.monotonic() > ends_s:
                    break
        print(*table(done), sep="\n")
        print(*differences(done, flags.max_tokens, models.target.vocabulary.eog), sep="\n")
        print("all cores gave way:", any(each.gave_way for each in models.contexts), flush=True)
        found = hits(models, chosen(flags.texts), flags.max_tokens)
    for kind, texts in found.items():
        share = statistics.mean(hit for text in texts for hit in text)
        counts = [rounds_of(texts, length) for length in lengths]
        told = ", ".join(
            f"k {k}: {c.rounds} rounds, {c.survived} survive"
            for k, c in zip(lengths, counts, strict=True)
        )
        print(f"{kind}: agreement {share:.3f} of {sum(map(len, texts))}; {told}")
    print(*worth_table(found), sep="\n")


def chosen(text: str) -> list[BenchPrompt]:
    """Return the first prompts of kinds, as KIND=COUNT with commas between, kinds in turn."""
    wanted = {kind: int(count) for kind, _, count in (e.partition("=") for e in text.split(","))}
    by_kind = {kind: [p for p in bundled() if p.workload == kind] for kind in wanted}
    ranked = [
        (place, prompt)
        for kind, count in wanted.items()
        for place, prompt in enumerate(by_kind[kind][:count])
    ]
    return [prompt for _, prompt in sorted(ranked, key=lambda pair: pair[0])]


if __name__ == "__main__":
    main()
