"""Rounds with two models whose passes may run beside each other: in turns, or drafting while the target verifies."""

import statistics
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from itertools import accumulate

from localspec.decoding.choose import Chooser
from localspec.decoding.drafters.drafter import Plan
from localspec.decoding.drafters.model import ModelDrafter
from localspec.decoding.drafters.spelling import SharedIds
from localspec.decoding.model import LanguageModel, Logits, Pass
from localspec.decoding.noise import Noise
from localspec.decoding.round import Draft, Verdict
from localspec.decoding.scheduler import NO_ROWS
from localspec.decoding.speculative import verify
from localspec.options import SamplingParams

_GREEDY = Chooser(SamplingParams(temperature=0), Noise(1))


Clock = Callable[[], float]
"""Seconds that a device has worked, as seen by the thread that asks."""


@dataclass(frozen=True, slots=True)
class Timed:
    """One round, in seconds of its devices.

    Args:
        drafted: tokens of its draft.
        accepted: of them.
        survived: whether the draft was made during the round before.
        useful: whether what was drafted meanwhile is the next draft.
        draft_s: drafting before the target's pass.
        verify_s: the target's pass.
        ahead_s: each of the draft model's passes meanwhile.
    """

    drafted: int
    accepted: int
    survived: bool
    useful: bool
    draft_s: float
    verify_s: float
    ahead_s: tuple[float, ...] = ()

    @property
    def round_s(self) -> float:
        """What the round takes where nothing else runs on the two devices.

        A draft that is of no use ends with the pass that is under way at the verdict; half a pass, where fewer are known.
        """
        if self.useful:
            return self.draft_s + max(self.verify_s, sum(self.ahead_s))
        ends = [at for at in accumulate(self.ahead_s) if at >= self.verify_s]
        cut_short = 0 < len(self.ahead_s) <= self.drafted and not ends
        lost_s = statistics.mean(self.ahead_s) / 2 if cut_short else 0.0
        return self.draft_s + (ends[0] if ends else self.verify_s + lost_s)


@dataclass(frozen=True, slots=True)
class Answer:
    """What was said, in whole rounds; the last one may go beyond the end.

    Args:
        tokens: of it.
        rounds: likewise.
        wall_s: seconds by the clock on the wall.
    """

    tokens: tuple[int, ...]
    rounds: tuple[Timed, ...]
    wall_s: float

    @property
    def speed(self) -> float:
        """Tokens per second of the devices."""
        return len(self.tokens) / sum(each.round_s for each in self.rounds)

    @property
    def wall_speed(self) -> float:
        """Tokens per second by the clock on the wall."""
        return len(self.tokens) / self.wall_s

    def mean(self, name: str) -> float:
        """Return the mean of a field over the rounds."""
        return statistics.mean(float(getattr(each, name)) for each in self.rounds)


class Pair:
    """Two models, and whatever says what they propose and choose.

    Args:
        target: its sequence.
        draft_model: likewise.
        shared_vocab: ids that both have.
        eog: ids that end an answer.
        clocks: of the target's device, and of the draft model's.
    """

    def __init__(
        self,
        target: LanguageModel,
        draft_model: LanguageModel,
        shared_vocab: int,
        eog: Collection[int],
        clocks: tuple[Clock, Clock] = (time.perf_counter, time.perf_counter),
    ) -> None:
        self._target_clock, self._draft_clock = clocks
        self._target, self._draft_model, self._eog = target, draft_model, frozenset(eog)
        self._drafter = ModelDrafter(draft_model, SharedIds(shared_vocab), eog)

    def answer(
        self, prompt: Sequence[int], length: int, most: int, beside: Executor | None = None
    ) -> Answer:
        """Answer with drafts of one length.

        Args:
            prompt: is evaluated before the clock starts, but for its last token.
            length: of drafts; 0 for none.
            most: tokens to say.
            beside: verifies while this thread drafts; None drafts and verifies in turns.
        """
        self._target.prefill(prompt[:-1])
        if length:
            self._draft_model.prefill(prompt[:-1])
        self._drafter.begin(prompt, _GREEDY)
        text, ready, rounds = list(prompt), Draft(), list[Timed]()
        begun = time.perf_counter()

        def ended(tokens: Sequence[int]) -> bool:
            said = tokens[len(prompt) :]
            return len(said) >= most or not self._eog.isdisjoint(said)

        while not ended(text):
            survived, draft_s, ahead_s = bool(ready.tokens), 0.0, list[float]()
            draft = ready
            if not survived and length:
                draft, steps_s = self._drafted(text, length)
                draft_s = sum(steps_s)
            if beside is None:
                verdict, verify_s = self._verified(text, draft)
                ready = Draft()
            else:
                verifying = beside.submit(self._verified, text, draft)
                ready, ahead_s = self._ahead(text, draft, length, ended, verifying)
                verdict, verify_s = verifying.result()
            text += _confirmed(draft, verdict)
            rounds.append(
                Timed(
                    drafted=len(draft.tokens),
                    accepted=verdict.accepted,
                    survived=survived,
                    useful=bool(ready.tokens),
                    draft_s=draft_s,
                    verify_s=verify_s,
                    ahead_s=tuple(ahead_s),
                )
            )
        return Answer(tuple(text[len(prompt) :]), tuple(rounds), time.perf_counter() - begun)

    def _ahead(
        self,
        text: Sequence[int],
        draft: Draft,
        length: int,
        ended: Callable[[Sequence[int]], bool],
        verifying: Future[tuple[Verdict, float]],
    ) -> tuple[Draft, list[float]]:
        """Draft what may follow a draft that is being verified; return that if it does, and what each pass took."""
        hoped = [*text, *draft.tokens]

        def useless(guessed: Sequence[int]) -> bool:
            if not verifying.done():
                return False
            said = [*text, *_confirmed(draft, verifying.result()[0])]
            return ended(said) or said != [*hoped, guessed[0]]

        found, steps_s = self._drafted(hoped, length + 1, useless)
        guess, *others = found.tokens
        follows = (*draft.tokens, guess) == _confirmed(draft, verifying.result()[0])
        return Draft(tuple(others) if follows else ()), steps_s

    def _verified(self, text: Sequence[int], draft: Draft) -> tuple[Verdict, float]:
        start = self._target_clock()
        logits = self._target.logits([*text, *draft.tokens], len(draft.tokens) + 1)
        verdict = verify(text, draft, logits, _GREEDY)
        return verdict, self._target_clock() - start

    def _drafted(
        self,
        text: Sequence[int],
        length: int,
        useless: Callable[[Sequence[int]], bool] = lambda _: False,
    ) -> tuple[Draft, list[float]]:
        """Return what the draft model proposes, as far as it came before that was useless, and what each pass took."""
        asking = self._drafter.propose(text, Plan(self._drafter, length), _GREEDY)
        steps_s: list[float] = []
        try:
            request = next(asking)
            while True:
                request = asking.send(self._passed(request, useless, steps_s))
        except StopIteration as finished:
            draft: Draft = finished.value
            return draft, steps_s

    def _passed(
        self, request: Pass, useless: Callable[[Sequence[int]], bool], steps_s: list[float]
    ) -> Logits:
        start = self._draft_clock()
        if not request.rows:
            self._draft_model.prefill(request.tokens)
            steps_s.append(self._draft_clock() - start)
            return NO_ROWS
        proposed: list[int] = []
        while True:
            rows = self._draft_model.logits([*request.tokens, *proposed], request.rows)
            token = None if request.more is None else request.more(rows)
            start, before = self._draft_clock(), start
            steps_s.append(start - before)
            if token is None:
                return rows
            proposed.append(token)
            if useless(proposed):
                return rows


def _confirmed(draft: Draft, verdict: Verdict) -> tuple[int, ...]:
    return (*draft.tokens[: verdict.accepted], verdict.next_token)
