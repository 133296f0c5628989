"""Runs of localspec itself, on weights that are loaded once."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from localspec.bench.modes import OFF
from localspec.bench.prompts import BenchPrompt
from localspec.bench.schedule import Slot
from localspec.bench.trial import Arrival, Trial
from localspec.chat.assistant import Assistant
from localspec.chat.events import Finished, Reply, RoundDone
from localspec.decoding.cancel import Cancelled
from localspec.decoding.policy.policy import Policy
from localspec.decoding.round import Round, StopReason
from localspec.options import ReplyOptions


def slot_options(asked: ReplyOptions, slot: Slot) -> ReplyOptions:
    """Return how the reply of a slot is made, alike for all of its modes: each repeat has a seed of its own."""
    sampling = replace(asked.sampling, temperature=slot.temperature)
    return replace(asked, sampling=sampling, seed=(asked.seed or 0) + slot.repeat)


@dataclass(slots=True, eq=False)
class OwnRuns:
    """Answers prompts in a mode, each from empty caches and without memories of earlier ones.

    Args:
        assistant: loaded.
        policy: gives a fresh policy for a mode.
        prompts: what the slots' numbers mean.
        asked: how every answer is made; the seed is of the first repeat, and each slot has its own temperature.
        clock: seconds, monotonic.
    """

    assistant: Assistant
    policy: Callable[[str], Policy]
    prompts: Sequence[BenchPrompt]
    asked: ReplyOptions
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
        prompt, options = self.prompts[slot.prompt].prompt, slot_options(self.asked, slot)
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
        """Answer one short prompt in every mode: the first pass of a width costs more."""
        for mode in dict.fromkeys([OFF, *modes]):
            brief = OwnRuns(
                self.assistant,
                self.policy,
                [BenchPrompt("", "Count from one to ten, twice.")],
                replace(self.asked, max_tokens=min(24, self.asked.max_tokens or 24)),
            )
            brief.run(Slot(0, 0.0, 0, mode, 0))


def _trial(slot: Slot, arrivals: list[Arrival], rounds: list[Round], reply: Reply) -> Trial:
    drafting = tuple(each for each in rounds if not each.is_first)
    return Trial(
        slot=slot,
        tokens=tuple(token for each in rounds for token in each.confirmed),
        arrivals=tuple(arrivals),
        prefill_s=reply.prefill_s,
        rounds=drafting,
        drafted=reply.acceptance.drafted,
        accepted=reply.acceptance.accepted,
    )
