"""How often is a draft model of another vocabulary right, and what does the policy make of it?

    python -m lab.benchmarks.across ANSWERS.json [--target qwen2.5-coder-1.5b:Q4_K_M] [--draft-model smollm2-135m]
                                    [--per-kind 2] [--kinds edit,summarise] [--max-tokens 64] [--raw [BEHIND]]
                                    [--modes model:3,model:8,auto]

The target answers the bundled prompts without drafting, at temperature 0 and 0.8; each answer is written to ANSWERS.json
as it comes, and what is there is not asked for again. --raw leaves out the chat template, for files without one, and puts
a text behind the prompt if it is given one. Then all answers are replayed without the target: the noise fixes its choices,
so a draft is accepted as far as the answer goes on like it. Nothing is timed; what a round of `auto` takes comes from tables
of costs: of the default pair's files on the reference machine, of an F16 target, and of a made-up GPU (`lab.simulator.costs`).
"""

import argparse
import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import llama_cpp.llama_cpp as native

from lab.benchmarks.workbench import forget, opened, prompts
from lab.simulator.costs import ACROSS, F16, GPU
from localspec.bench.prompts import BenchPrompt
from localspec.chat.conversation import Conversation, raw_tokens
from localspec.decoding.cancel import CancelFlag
from localspec.decoding.choose import Chooser
from localspec.decoding.costs import PairCosts
from localspec.decoding.drafters.drafter import Plan
from localspec.decoding.model import LanguageModel
from localspec.decoding.noise import Noise
from localspec.decoding.policy.policy import Policy
from localspec.decoding.round import Draft, Round, Spent, Verdict
from localspec.decoding.scheduler import NO_ROWS
from localspec.decoding.stats import AcceptanceStats
from localspec.launch.drafting import Drafting
from localspec.llama.backend import initialise
from localspec.llama.model import LlamaModel
from localspec.llama.sequences import LlamaSequences
from localspec.llama.token_map import TokenMap
from localspec.llama.vocabulary import Vocabulary
from localspec.models.pull import pull
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams

TABLES = {
    "Q4_K_M": PairCosts(ACROSS.target, ACROSS.draft),
    "F16": PairCosts(F16.target, ACROSS.draft),
    "GPU": PairCosts(GPU.target, GPU.draft),
}
TEMPERATURES = (0.0, 0.8)
N_CTX = 4096


@dataclass(frozen=True, slots=True)
class Answer:
    """What the target said."""

    workload: str
    temperature: float
    seed: int
    prompt: list[int]
    tokens: list[int]


def wanted(per_kind: int, kinds: Sequence[str]) -> list[tuple[int, BenchPrompt, float]]:
    """Return what is to be answered: seed, prompt and temperature."""
    taken: dict[str, int] = {}
    found = []
    for seed, asked in enumerate(prompts()):
        taken[asked.workload] = taken.get(asked.workload, 0) + 1
        if taken[asked.workload] <= per_kind and (not kinds or asked.workload in kinds):
            found += [(seed, asked, temperature) for temperature in TEMPERATURES]
    return found


def record(flags: argparse.Namespace, found: list[Answer]) -> None:
    """Let the target answer what has no answer yet."""
    had = {(each.seed, each.temperature) for each in found}
    missing = [
        each
        for each in wanted(flags.per_kind, flags.kinds.split(",") if flags.kinds else ())
        if (each[0], each[2]) not in had
    ]
    if not missing:
        return
    load_options = LoadOptions(n_ctx=N_CTX)
    runtime = opened(LaunchOptions(target=flags.target, draft="off", load=load_options))
    speaker = runtime.assistant
    for seed, asked, temperature in missing:
        conversation = Conversation()
        conversation.append_user(asked.prompt)
        plain = None if flags.raw is None else asked.prompt + flags.raw
        prompt = (
            speaker.prompt_tokens(conversation)
            if plain is None
            else raw_tokens(plain, speaker.models.tokenizer)
        )
        forget(runtime)
        sampling = SamplingParams(temperature=temperature)
        options = ReplyOptions(sampling, seed=seed, max_tokens=flags.max_tokens)
        text = conversation if plain is None else plain
        tokens = list(speaker.reply(text, options, raw=plain is not None).tokens)
        found.append(Answer(asked.workload, temperature, seed, list(prompt), tokens))
        flags.answers.write_text(json.dumps([asdict(each) for each in found]))
        print(f"{asked.workload} at {temperature}: {len(tokens)} tokens", flush=True)
    speaker.close()


@dataclass(slots=True)
class Asked:
    """What was asked of the draft model."""

    passes: int = 0
    evaluated: int = 0

    def add(self, model: LanguageModel, tokens: list[int]) -> None:
        """Count a pass before it is made."""
        self.passes += 1
        self.evaluated += max(1, len(tokens) - model.common_prefix(tokens))


def proposed(
    plan: Plan, model: LanguageModel, tokens: list[int], chooser: Chooser, count: Asked
) -> Draft:
    """Return what a plan proposes, making its passes."""
    asking = plan.drafter.propose(tokens, plan, chooser)
    try:
        request = next(asking)
        while True:
            asked, rows = list(request.tokens), request.rows
            count.add(model, asked)
            if rows == 0:
                model.prefill(asked)
                request = asking.send(NO_ROWS)
                continue
            logits = model.logits(asked, rows)
            while request.more is not None and (token := request.more(logits)) is not None:
                asked.append(token)
                count.add(model, asked)
                logits = model.logits(asked, 1)
            request = asking.send(logits)
    except StopIteration as finished:
        draft = finished.value
        assert isinstance(draft, Draft)
        return draft


def replay(
    policy: Policy, model: LanguageModel, answer: Answer, costs: PairCosts, count: Asked
) -> tuple[AcceptanceStats, float]:
    """Return what was accepted, and the seconds of all rounds by a table of costs."""
    chooser = Chooser(SamplingParams(temperature=answer.temperature), Noise(answer.seed))
    text, stats, total_s = [*answer.prompt, *answer.tokens], AcceptanceStats(), 0.0
    end = len(answer.prompt) + 1
    policy.begin(text[:end], chooser)
    while end < len(text):
        tokens, room = text[:end], len(text) - end
        plan = policy.plan(tokens, room)
        plan = Plan(plan.drafter, min(plan.draft_length, room - 1), plan.rate, plan.stopping)
        draft = proposed(plan, model, tokens, chooser, count)
        comes = text[end:]
        pairs = enumerate(zip(draft.tokens, comes, strict=False))
        accepted = next((at for at, (one, other) in pairs if one != other), len(draft.tokens))
        draft_s = plan.drafter.foreseen_s() if plan.drafter.shares_passes else 0.0
        spent = Spent(draft_s=draft_s, verify_s=costs.target.of(len(draft.tokens) + 1))
        confirmed = tuple(comes[: accepted + 1])
        done = Round(draft, Verdict(accepted, confirmed[-1]), confirmed, spent)
        policy.learn(done)
        stats.add(done)
        total_s += spent.round_s
        end += len(confirmed)
    policy.end()
    return stats, total_s


def vocabulary_of(path: Path) -> tuple[int, Vocabulary]:
    """Return a model of which only the vocabulary is read, and that."""
    initialise()
    params = native.llama_model_default_params()
    params.vocab_only = True
    handle = native.llama_model_load_from_file(os.fsencode(path), params)
    return handle, Vocabulary(native.llama_model_get_vocab(handle))


def file_of(name: str) -> Path:
    """Return the file of a model."""
    return Path(name) if name.endswith(".gguf") else pull(name)[0]


def table(drafting: Drafting, mode: str, answers: Sequence[Answer]) -> None:
    """Print a line for each kind of text and temperature."""
    assert drafting.draft_models is not None
    costs = drafting.costs or TABLES["Q4_K_M"]
    view = drafting.draft_models.views[0]
    kinds = list(dict.fromkeys((each.workload, each.temperature) for each in answers))
    for workload, temperature in kinds:
        sums, own, ratios, count = AcceptanceStats(), AcceptanceStats(), [], Asked()
        for answer in answers:
            if (answer.workload, answer.temperature) != (workload, temperature):
                continue
            view.truncate(0)
            policy = drafting.policy(mode)
            stats, seconds = replay(policy, view, answer, costs, count)
            plain_s = stats.confirmed * costs.target.of(1)
            ratios.append(plain_s / seconds if seconds else 1.0)
            for into, part in ((sums, stats), (own, stats.by_drafter.get("model"))):
                if part is not None:
                    into.rounds += part.rounds
                    into.drafted += part.drafted
                    into.accepted += part.accepted
                    into.confirmed += part.confirmed
        rate, length = own.acceptance_rate, sums.mean_acceptance_length
        said = "  none" if rate is None else f"{rate:6.3f}"
        speed = math.prod(ratios) ** (1 / len(ratios))
        print(
            f"{workload:10} {temperature}  {said}, {own.accepted:4} of {own.drafted:4} by the model, "
            f"{length or 1:.2f} tokens a round, {count.passes} passes of it, {count.evaluated} tokens"
            + (f", {speed:.3f} x plain" if drafting.costs else ""),
            flush=True,
        )


def main() -> None:
    """Record or read the answers, and replay them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("answers", type=Path)
    parser.add_argument("--target", default="qwen2.5-coder-1.5b:Q4_K_M")
    parser.add_argument("--draft-model", default="smollm2-135m")
    parser.add_argument("--per-kind", type=int, default=2)
    parser.add_argument("--kinds", default="", help="as in edit,summarise; all without it")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--raw", nargs="?", const="")
    parser.add_argument("--modes", default="model:3,model:8,auto")
    flags = parser.parse_args()
    saved = json.loads(flags.answers.read_text()) if flags.answers.exists() else []
    answers = [Answer(**each) for each in saved]
    record(flags, answers)
    print(f"{len(answers)} answers, {sum(len(each.tokens) for each in answers)} tokens")
    handle, target = vocabulary_of(file_of(flags.target))
    model = LlamaModel(file_of(flags.draft_model), LoadOptions())
    options = LoadOptions(n_ctx=N_CTX, max_rows=16)
    sequences = LlamaSequences(model, CancelFlag(), options, 1, 16)
    spelling = TokenMap(target, model.vocabulary).spelling
    for mode in flags.modes.split(","):
        for name, costs in TABLES.items() if mode == "auto" else [("no table", None)]:
            print(f"{mode}, costs of {name}")
            table(Drafting(1, sequences, spelling, target.eog, costs, 31), mode, answers)
    model.close()
    native.llama_model_free(handle)


if __name__ == "__main__":
    main()
