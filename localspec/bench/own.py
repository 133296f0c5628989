"""Runs of localspec itself, on weights that are loaded once."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from localspec.bench.modes import OFF
from localspec.bench.prompts import Prompt
from localspec.bench.recording import RecordingPolicy
from localspec.bench.schedule import Slot
from localspec.bench.trial import Arrival, Trial
from localspec.chat.assistant import Assistant
from localspec.chat.events import Reply
from localspec.decoding.cancel import Cancelled
from localspec.decoding.generate import StopReason
from localspec.decoding.policy import Policy
from localspec.options import ReplyOptions


def slot_options(asked: ReplyOptions, slot: Slot) -> ReplyOptions:
    """Return how the reply of a slot is made, alike for all of its modes: each repeat has a seed of its own."""
    sampling = replace(asked.sampling, temperature=slot.temperature)
    return replace(asked, sampling=sampling, seed=(asked.seed or 0) + slot.repeat)


class OwnRuns:
    """Answers prompts in a mode, each from empty caches and without memories of earlier ones.

    Args:
        assistant: loaded.
        policy: gives a fresh policy for a mode.
        prompts: what the slots' numbers mean.
        asked: how every answer is made; the seed is of the first repeat, and each slot has its own temperature.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        assistant: Assistant,
        policy: Callable[[str], Policy],
        prompts: Sequence[Prompt],
        asked: ReplyOptions,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._assistant = assistant
        self._policy = policy
        self._prompts = prompts
        self._asked = asked
        self._clock = clock

    def run(self, slot: Slot) -> Trial:
        """Answer, and return what came of it.

        Raises:
            Cancelled: the models' cancel flag was set.
            ContextOverflow: the prompt leaves no room for an answer.
        """
        models = self._assistant.models
        for model in (models.target, models.draft_model):
            if model is not None:
                model.truncate(0)
        policy = self._policy(slot.mode)
        start = self._clock()
        record = RecordingPolicy(policy, self._clock, start)
        self._assistant.policy = record
        prompt = self._prompts[slot.prompt].prompt
        reply = self._assistant.reply(prompt, slot_options(self._asked, slot))
        if reply.stop_reason is StopReason.CANCELLED:
            raise Cancelled
        return _trial(slot, record, reply)

    def warm_up(self, modes: Sequence[str]) -> None:
        """Answer one short prompt in every mode: the first pass of a width costs more."""
        for mode in dict.fromkeys([OFF, *modes]):
            brief = OwnRuns(
                self._assistant,
                self._policy,
                [Prompt("", "Count from one to ten, twice.")],
                replace(self._asked, max_tokens=min(24, self._asked.max_tokens or 24)),
            )
            brief.run(Slot(0, 0.0, 0, mode, 0))


def _trial(slot: Slot, record: RecordingPolicy, reply: Reply) -> Trial:
    arrivals = record.arrivals or [Arrival(1, reply.first_token_s or 0.0)]  # the first ended it
    # A round may confirm a token beyond the one that ended the answer.
    n_tokens = reply.completion_tokens
    arrivals[-1] = replace(arrivals[-1], n_tokens=n_tokens)
    rounds = record.rounds
    if rounds:
        before = arrivals[-2].n_tokens
        rounds[-1] = replace(rounds[-1], confirmed=n_tokens - before)
    return Trial(
        slot=slot,
        tokens=(*reply.tokens[:1], *record.tokens)[:n_tokens],
        arrivals=tuple(arrivals),
        prefill_s=reply.timings.prefill_s,
        rounds=tuple(rounds),
        drafted=sum(each.drafted for each in rounds),
        accepted=sum(min(each.accepted, each.confirmed) for each in rounds),
    )
