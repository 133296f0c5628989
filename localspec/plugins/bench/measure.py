"""The measurement itself: models are loaded once, and every run of a schedule is made, one after the other.

Machines drift: they heat up, and others use them. So every run is a neighbour of a run of the first arm, and only
neighbours are compared: two arms share the run of the first arm between them. Which arms share one is drawn for each
prompt and repeat; they take turns in going first, so that of ten prompts each of two arms begins five.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from random import Random
from typing import Protocol

from localspec.api import Finished, ReplyOptions, Round, RoundDone, StopReason, UsageError
from localspec.chat.assistant import Assistant
from localspec.chat.token_prefix import Conversation
from localspec.decoding.cancel import Cancelled
from localspec.decoding.policy import Policy
from localspec.errors import ContextOverflow
from localspec.plugins.bench.arms import Arm
from localspec.plugins.bench.estimate import FIRST_PAIRS, LEAST_PAIRS, pairs_needed
from localspec.plugins.bench.prompts import BenchPrompt
from localspec.plugins.bench.trial import Arrival, Slot, Trial, log_ratio, neighbours

OnTrial = Callable[[int, int, Trial], None]
_MOST_RUNS = 1000
"""Repeats, or pairs: more take weeks, and a list of them much memory."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What to measure.

    Args:
        arms: to compare, all of them with the first.
        prompts: what to answer.
        prompts_name: where they are from.
        temperatures: at each of which.
        reply: how every answer is made; the seed is of the first repeat.
        repeats: how often each.
        verdict: whether two arms are compared in as many pairs as the noise requires.
        pairs: how many pairs there are for that; None lets the noise of the first ones decide.
    """

    arms: Sequence[Arm]
    prompts: Sequence[BenchPrompt]
    prompts_name: str
    temperatures: Sequence[float]
    reply: ReplyOptions
    repeats: int = 1
    verdict: bool = False
    pairs: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.repeats <= _MOST_RUNS:
            raise UsageError(f"repeat is {self.repeats}: give 1 to {_MOST_RUNS}")
        if self.pairs is not None and not LEAST_PAIRS <= self.pairs <= _MOST_RUNS:
            raise UsageError(f"pairs is {self.pairs}: give {LEAST_PAIRS} to {_MOST_RUNS}")

    @property
    def names(self) -> list[str]:
        """Names of the arms."""
        return [arm.name for arm in self.arms]


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """All that was measured.

    Args:
        bench: what was measured.
        setting: what the figures hold for, in words, in order.
        trials: the runs.
        planned: how many there were to be.
    """

    bench: Bench
    setting: Mapping[str, object]
    trials: Sequence[Trial]
    planned: int

    @property
    def neighbours(self) -> list[tuple[Trial, Trial]]:
        """Every run of another arm with its neighbour of the first."""
        return neighbours(self.trials, self.bench.names[0])

    @property
    def is_whole(self) -> bool:
        """Whether all runs that were planned were made."""
        return len(self.trials) >= self.planned


class Runs(Protocol):
    """Answers prompts: localspec itself, or another program."""

    def run(self, slot: Slot) -> Trial:
        """Answer, and return the figures; raises Cancelled."""
        ...

    def warm_up(self, modes: Sequence[str]) -> None:
        """Do once, untimed, what costs more the first time."""
        ...


def slot_options(reply: ReplyOptions, slot: Slot) -> ReplyOptions:
    """Return how the reply of a slot is made, alike for all arms: each repeat has a seed of its own."""
    sampling = replace(reply.sampling, temperature=slot.temperature)
    return replace(reply, sampling=sampling, seed=(reply.seed or 0) + slot.repeat)


@dataclass(slots=True, eq=False)
class OwnRuns:
    """Answers prompts with an arm, each from empty caches and without memories of earlier ones.

    Args:
        assistant: loaded.
        policy: gives a fresh policy for the name of an arm.
        prompts: what the slots' numbers mean.
        reply: how every answer is made; the seed is of the first repeat, and each slot has its own temperature.
        clock: seconds, monotonic.
    """

    assistant: Assistant
    policy: Callable[[str], Policy]
    prompts: Sequence[BenchPrompt]
    reply: ReplyOptions
    clock: Callable[[], float] = time.perf_counter

    def run(self, slot: Slot) -> Trial:
        """Answer, and return the figures.

        Raises:
            Cancelled: the models' cancel flag was set.
            ContextOverflow: the prompt leaves no room for an answer.
        """
        models = self.assistant.models
        for model in (models.target, models.draft_model):
            if model is not None:
                model.truncate(0)
        prompt, options = self.prompts[slot.prompt].prompt, slot_options(self.reply, slot)
        policy, start = self.policy(slot.mode), self.clock()
        arrivals: list[Arrival] = []
        rounds: list[Round] = []
        for event in self.assistant.stream(prompt, options, policy=policy):
            if isinstance(event, RoundDone):
                before = arrivals[-1].n_tokens if arrivals else 0
                n_tokens = before + len(event.round.confirmed)
                arrivals.append(Arrival(n_tokens, self.clock() - start))
                rounds.append(event.round)
            elif isinstance(event, Finished):
                if event.reply.stop_reason is StopReason.CANCELLED:
                    raise Cancelled
                return Trial(
                    slot=slot,
                    tokens=tuple(token for each in rounds for token in each.confirmed),
                    arrivals=tuple(arrivals),
                    prefill_s=event.reply.prefill_s,
                    rounds=tuple(each for each in rounds if not each.is_first),
                    drafted=event.reply.acceptance.drafted,
                    accepted=event.reply.acceptance.accepted,
                    gain=event.reply.gain,
                )
        raise AssertionError("a stream of events ends with Finished")

    def warm_up(self, modes: Sequence[str]) -> None:
        """Answer one short prompt with every arm: the first pass of a width costs more."""
        prompts = [BenchPrompt("", "Count from one to ten, twice.")]
        reply = replace(self.reply, max_tokens=min(24, self.reply.max_tokens or 24))
        for mode in modes:
            OwnRuns(self.assistant, self.policy, prompts, reply).run(Slot(0, 0.0, 0, mode, 0))


def schedule(
    n_prompts: int,
    arms: Sequence[str],
    temperatures: Sequence[float],
    repeats: int | None,
    seed: int = 0,
) -> Iterator[Slot]:
    """Yield every run in order, the prompts mixed; every prompt comes before a second repeat.

    Args:
        n_prompts: to be answered.
        arms: names of what is compared with the first of them.
        temperatures: at which.
        repeats: how often each; None goes on without an end.
        seed: the same one gives the same order.
    """
    rng = Random(seed)  # noqa: S311 - an order, no secret
    prompts, start = rng.sample(range(n_prompts), n_prompts), rng.randrange(2)
    for repeat in count() if repeats is None else range(repeats):
        for temperature in temperatures:
            for at, prompt in enumerate(prompts):
                turn = 1 if (start + at + repeat) % 2 else -1
                for group, names in enumerate(_groups(arms, rng)):
                    for arm in names[::turn]:
                        yield Slot(prompt, temperature, repeat, arm, group)


def _groups(arms: Sequence[str], rng: Random) -> Iterator[list[str]]:
    first, shuffled = arms[0], rng.sample(arms[1:], len(arms) - 1)
    if not shuffled:
        yield [first]
    for at in range(0, len(shuffled), 2):
        one, *other = shuffled[at : at + 2]
        yield [one, first, *other]


def measure(
    bench: Bench, runs: Mapping[str, Runs], on_trial: OnTrial = lambda *_: None
) -> tuple[list[Trial], int]:
    """Make the runs in order, and return them with how many were planned; fewer if it was cancelled.

    Args:
        bench: what to measure.
        runs: what answers, by name of the arm.
        on_trial: called after each run with how many are done, of how many, and the run.

    Raises:
        LocalspecError: a run failed.
    """
    repeats = None if bench.verdict else bench.repeats
    slots: Iterable[Slot] = schedule(len(bench.prompts), [*runs], bench.temperatures, repeats)
    planned = 2 * (bench.pairs or FIRST_PAIRS)
    if not bench.verdict:
        slots = [*slots]
        planned = len(slots)
    trials: list[Trial] = []
    with suppress(Cancelled):
        for its in dict.fromkeys(runs.values()):
            its.warm_up([arm for arm, of_arm in runs.items() if of_arm is its])
        for slot in slots:
            trials.append(runs[slot.mode].run(slot))
            if bench.verdict and bench.pairs is None and len(trials) == 2 * FIRST_PAIRS:
                pairs = neighbours(trials, bench.names[0])
                planned = 2 * pairs_needed([log_ratio(*pair) for pair in pairs])
            on_trial(len(trials), planned, trials[-1])
            if len(trials) == planned:
                break
    return trials, planned


def prompt_tokens(assistant: Assistant, prompts: Sequence[BenchPrompt]) -> list[list[int]]:
    """Return the tokens of every prompt, in the target's chat template.

    Raises:
        ContextOverflow: one of them leaves no room for an answer.
        TemplateError: the target has no template.
    """
    lists = []
    n_ctx = assistant.models.target.n_ctx
    for number, prompt in enumerate(prompts, start=1):
        conversation = Conversation()
        conversation.append_user(prompt.prompt)
        tokens = conversation.prompt_tokens(assistant.template, assistant.models.tokenizer)
        if len(tokens) >= n_ctx:
            raise ContextOverflow(
                f"prompt {number} ({prompt.workload}) has {len(tokens)} tokens and the context "
                f"holds {n_ctx}: remove it",
                (len(tokens), n_ctx, assistant.models.longest),
            )
        lists.append(tokens)
    return lists
