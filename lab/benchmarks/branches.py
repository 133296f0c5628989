"""What branches earn: in simulated worlds by the draft model's agreement, and on real weights as if width were free.

    python -m lab.benchmarks.branches [--seeds 10]                     # worlds: speed with branches over speed without
    python -m lab.benchmarks.branches --pair qwen2.5-coder-1.5b        # real weights, which take their time

Nothing here is timed. Worlds have a clock of their own. With `--pair`, the bundled prompts are answered by a policy that
takes passes to cost what the simulator's table of a GPU says, once with branches and once without: how many passes it
takes, what they would cost there, how often the second choice was right where the first was not, and whether the texts are the same.
"""

import argparse
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from lab.benchmarks.workbench import machine, opened, prompts
from lab.simulator.assessment import mean_and_error, plain_of
from lab.simulator.catalogue import build
from lab.simulator.contenders import adaptive, chains
from lab.simulator.costs import GPU, TABLES
from lab.simulator.loop import WARM_UP, Run, run
from lab.simulator.world import TrueCosts
from localspec.bench.prompts import per_workload
from localspec.chat.assistant import Assistant
from localspec.chat.conversation import Conversation
from localspec.chat.events import Finished, RequestFailed, RoundDone
from localspec.chat.requests import Request
from localspec.decoding.drafters.drafter import Drafter
from localspec.decoding.drafters.model import ModelDrafter
from localspec.decoding.policy.adaptive import LONGEST_DRAFT, MOST_BRANCHES, AdaptivePolicy
from localspec.decoding.round import Round, Spent
from localspec.launch.load import Runtime
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams


class Believing(AdaptivePolicy):
    """A policy that takes every pass to have cost what a table says.

    Args:
        costs: the table.
        longest: most tokens of a draft.
        drafters: whoever may propose.
        branches: most second choices beside a draft.

    Attributes:
        seconds: what the rounds would have taken.
    """

    def __init__(
        self, costs: TrueCosts, longest: int, drafters: Iterable[Drafter], branches: int
    ) -> None:
        super().__init__(costs.target, longest, tuple(drafters), branches)
        self._costs = costs
        self.seconds = 0.0

    def learn(self, done: Round) -> None:
        """Take in what came of a round, as if it had been made there."""
        drafter = self._by_name.get(done.draft.drafter)
        draft_s = 0.0 if drafter is None else drafter.foreseen_s()
        verify_s = self._costs.target.of(done.width + self._again)
        self.seconds += verify_s + draft_s
        super().learn(replace(done, spent=Spent(draft_s=draft_s, verify_s=verify_s)))


def believing(runtime: Runtime, branches: int) -> Believing:
    """Return a policy for the first sequence that drafts as on a GPU, with no wider passes than are safe here."""
    models = runtime.assistant.models
    small = models.draft_model
    assert small is not None, "there is a draft model"
    assert runtime.drafting.spelling is not None
    drafter = ModelDrafter(small, runtime.drafting.spelling(), models.eog, GPU.draft)
    return Believing(GPU, min(LONGEST_DRAFT, runtime.drafting.longest), [drafter], branches)


def speed(name: str, seed: int, ran: Run) -> float:
    """Return the speed from the 300th token on, in plain decoding's."""
    plain = plain_of(name, seed)
    return float((plain[-1] - plain[WARM_UP]) / (ran.seconds[-1] - ran.seconds[WARM_UP]))


def worlds(seeds: int) -> None:
    """Print what branches gain, by table of costs and agreement."""
    print(f"{'world':28}{'chains':>8}{'branches':>10}{'gain %':>14}")
    names = [f"stationary-{table}-{a}" for table in TABLES for a in (0.5, 0.7, 0.85, 0.95, 0.99)]
    for name in [*names, "drifting-gpu", "bimodal-gpu", "staircase"]:
        without, within = (
            [speed(name, seed, run(build(name, seed), contender)) for seed in range(seeds)]
            for contender in (chains, adaptive)
        )
        gains = [100 * (b / a - 1) for a, b in zip(without, within, strict=True)]
        gain, error = mean_and_error(gains)
        means = (sum(each) / seeds for each in (without, within))
        print(f"{name:28}" + "".join(f"{m:9.2f}" for m in means) + f"{gain:9.1f} ± {error:.1f}")


def answered(
    assistant: Assistant, policy: Believing, prompt: str, options: ReplyOptions
) -> tuple[tuple[int, ...], list[Round], float]:
    """Return the tokens and rounds of an answer, and what they would have taken."""
    conversation, rounds, before_s = Conversation(), list[Round](), policy.seconds
    conversation.append_user(prompt)
    small = assistant.models.draft_model
    assert small is not None
    small.truncate(0)  # what it has of the same text would be nothing to show itself on
    request = Request(0, conversation, options, policy=lambda _slot: policy)
    assistant.submit(request)
    while True:
        assistant.step()
        for _, event in assistant.take(0):
            if isinstance(event, RoundDone):
                rounds += [event.round] * (not event.round.is_first)
            elif isinstance(event, RequestFailed):
                raise event.error
            elif isinstance(event, Finished):
                return event.reply.tokens, rounds, policy.seconds - before_s


def real(pair: str, count: int, max_tokens: int, *, exact: bool) -> None:
    """Print what branches confirm on real weights."""
    launch = LaunchOptions(
        pair, draft="model:15", further=("auto",), exact=exact, load=LoadOptions(n_ctx=2048)
    )
    runtime = opened(launch)
    assistant = runtime.assistant
    without, within = (believing(runtime, branches) for branches in (0, MOST_BRANCHES))
    print(f"{machine()}; {pair}{' --exact' if exact else ''}, {count} prompts a kind")
    print(
        f"{'':22}{'tokens':>7}{'passes':>15}{'branches':>14}{'seconds there':>18}{'second right':>16}{'same':>6}"
    )
    total = Counter[str]()
    for index, prompt in enumerate(per_workload(prompts(), count)):
        for temperature in (0.0, 0.8):
            options = ReplyOptions(
                SamplingParams(temperature=temperature), seed=index, max_tokens=max_tokens
            )
            plain, alone, alone_s = answered(assistant, without, prompt.prompt, options)
            tokens, rounds, seconds = answered(assistant, within, prompt.prompt, options)
            rejected = [r for r in alone if r.verdict.accepted < r.drafted]
            its = Counter(
                tokens=len(tokens), chains=len(alone), passes=len(rounds),
                branched=sum(r.branched for r in rounds), caught=sum(r.caught for r in rounds),
                chains_ms=round(1000 * alone_s), ms=round(1000 * seconds),
                rejected=len(rejected), second=sum(r.correction_rank == 2 for r in rejected),
                answers=1, same=tokens == plain,
            )  # fmt: skip
            total += its
            print(_row(f"{prompt.workload}, {temperature}", its), flush=True)
    print(_row("all", total))
    assistant.close()


def _row(name: str, its: Counter[str]) -> str:
    return (
        f"{name:22}{its['tokens']:7}{its['chains']:7} → {its['passes']:5}"
        f"{its['caught']:7} of {its['branched']:4}{its['chains_ms'] / 1000:8.2f} → {its['ms'] / 1000:6.2f}"
        f"{its['second']:8} of {its['rejected']:4}{its['same']:3} of {its['answers']}"
    )


def main() -> None:
    """Print the table that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--pair")
    parser.add_argument("--prompts", type=int, default=2, help="of each kind")
    parser.add_argument("--max-tokens", type=int, default=80)
    parser.add_argument("--exact", action="store_true")
    args = parser.parse_args()
    if args.pair:
        real(args.pair, args.prompts, args.max_tokens, exact=args.exact)
    else:
        worlds(args.seeds)


if __name__ == "__main__":
    main()
