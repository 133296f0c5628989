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
from pathlib import Path
from random import Random
from typing import Protocol

from localspec.bench.arms import OFF
from localspec.bench.prompts import BenchPrompt
from localspec.bench.trial import Arrival, Slot, Trial
from localspec.chat.assistant import Assistant
from localspec.chat.conversation import Conversation
from localspec.chat.events import Finished, Reply, RoundDone
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.policy import Policy
from localspec.decoding.round import Round, StopReason
from localspec.errors import ContextOverflow
from localspec.launch.load import load as load_plan
from localspec.launch.plan import make_plan
from localspec.models.transfer import Progress
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions


@dataclass(frozen=True, slots=True)
class Watchers:
    """Callbacks that show how far fetching, loading and calibrating are."""

    download: Callable[[Progress], None] = lambda _: None
    load: Callable[[str, float], None] = lambda _name, _share: None
    measure: Callable[[str, float], None] = lambda _name, _share: None


@dataclass(frozen=True, slots=True, eq=False)
class BenchModels:
    """Models that are loaded, and what they are called.

    Args:
        assistant: answers; its policy is whatever the last run needed.
        policy: gives a fresh policy for a mode, without memories.
        options: how they are loaded, as it fits the memory.
        target: file of the target.
        draft_model: file of the draft model, if one is loaded.
        names: of both, as the user knows them.
    """

    assistant: Assistant
    policy: Callable[[str], Policy]
    options: LoadOptions
    target: Path
    draft_model: Path | None
    names: Mapping[Path, str]


def load(
    request: LaunchOptions, modes: Sequence[str], cancel: CancelFlag, watchers: Watchers
) -> BenchModels:
    """Fetch and load what the modes need.

    Raises:
        LocalspecError: something cannot be fetched or loaded; `make_plan` says what there is.
        Cancelled: `cancel` was set while loading.
    """
    plan = make_plan(replace(request, draft=OFF, further=tuple(modes)), watchers.download)
    loaded = load_plan(plan, cancel, watchers.load, watchers.measure)
    return BenchModels(
        loaded.assistant,
        loaded.drafting.policy,
        plan.options,
        plan.target,
        plan.draft_model,
        plan.names,
    )


class Runs(Protocol):
    """Answers prompts: localspec itself, or another program."""

    def run(self, slot: Slot) -> Trial:
        """Answer, and return what came of it; raises Cancelled."""
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
        """Answer, and return what came of it.

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
                return _trial(slot, arrivals, rounds, event.reply)
        raise AssertionError("a stream of events ends with Finished")

    def warm_up(self, modes: Sequence[str]) -> None:
        """Answer one short prompt with every arm: the first pass of a width costs more."""
        prompts = [BenchPrompt("", "Count from one to ten, twice.")]
        reply = replace(self.reply, max_tokens=min(24, self.reply.max_tokens or 24))
        for mode in modes:
            OwnRuns(self.assistant, self.policy, prompts, reply).run(Slot(0, 0.0, 0, mode, 0))


def _trial(slot: Slot, arrivals: list[Arrival], rounds: list[Round], reply: Reply) -> Trial:
    return Trial(
        slot=slot,
        tokens=tuple(token for each in rounds for token in each.confirmed),
        arrivals=tuple(arrivals),
        prefill_s=reply.prefill_s,
        rounds=tuple(each for each in rounds if not each.is_first),
        drafted=reply.acceptance.drafted,
        accepted=reply.acceptance.accepted,
    )


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
                for group, neighbours in enumerate(_groups(arms, rng)):
                    for arm in neighbours[::turn]:
                        yield Slot(prompt, temperature, repeat, arm, group)


def _groups(arms: Sequence[str], rng: Random) -> Iterator[list[str]]:
    first, shuffled = arms[0], rng.sample(arms[1:], len(arms) - 1)
    if not shuffled:
        yield [first]
    for at in range(0, len(shuffled), 2):
        one, *other = shuffled[at : at + 2]
        yield [one, first, *other]


def measure(
    slots: Iterable[Slot],
    runs: Mapping[str, Runs],
    planned: int,
    on_trial: Callable[[int, int, Trial], None] = lambda *_: None,
    more: Callable[[Sequence[Trial]], int] = lambda _: 0,
) -> tuple[list[Trial], int]:
    """Make runs in order, and return what came of them and how many were planned; fewer if it was cancelled.

    Args:
        slots: at least as many as are planned.
        runs: what answers, by name of the arm.
        planned: how many runs to make.
        on_trial: called after each with how many are done, of how many.
        more: returns how many are planned in all, given those that were made so far.

    Raises:
        LocalspecError: a run failed.
    """
    trials: list[Trial] = []
    with suppress(Cancelled):
        for its in dict.fromkeys(runs.values()):
            its.warm_up([arm for arm, of_arm in runs.items() if of_arm is its])
        for slot in slots:
            trials.append(runs[slot.mode].run(slot))
            planned = max(planned, more(trials))
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
    found = []
    n_ctx = assistant.models.target.n_ctx
    for number, prompt in enumerate(prompts, start=1):
        conversation = Conversation()
        conversation.append_user(prompt.prompt)
        tokens = conversation.prompt_tokens(assistant.template, assistant.models.tokenizer)
        if len(tokens) >= n_ctx:
            raise ContextOverflow(
                f"prompt {number} ({prompt.workload}) has {len(tokens)} tokens and the context "
                f"holds {n_ctx}: remove it, or raise --ctx"
            )
        found.append(tokens)
    return found
