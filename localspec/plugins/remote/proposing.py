"""AnswerDrafts: proposes for one answer of a server, as it is told what is confirmed.

Beside a server elsewhere it drafts on while proposals are on their way, as if all came true. Beside one of this machine, whose cores it
takes, it drafts as far as a round that waits for it gains.
"""

import queue
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf

from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection

from localspec.api import Draft, DraftForecast, Round
from localspec.decoding.choose import Chooser
from localspec.decoding.costs import PassCosts, RunningCosts
from localspec.decoding.drafters.draft_length import best_length
from localspec.decoding.drafters.drafter import Plan
from localspec.decoding.drafters.lookup import LookupDrafter
from localspec.decoding.drafters.model import ModelDrafter
from localspec.decoding.model import Logits, Pass
from localspec.decoding.policy import LONGEST_DRAFT, DraftLedger
from localspec.decoding.proposals import checksum
from localspec.decoding.round import Spent, Verdict
from localspec.engine.drafts import Confirmed, DraftProposal, decoded, encoded

_AHEAD, _LEAST_REACH = 24, 0.15
"""Tokens up to which drafts go on while others are on their way, and the chance that all of them come true down to which."""
_WORTH_A_TRY = 1.05
"""Tokens that drafting has to promise for each plain step that it takes."""
_EXPECTED, _DISTURBED = 1.5, 1.4
"""Tokens that a plain step of a first try is expected to yield; and how many times what was foreseen a round counts at most."""
_MOST_LATE = 4.0
"""Plain steps that a draft model may take to catch up with a text, which it does once."""
_TOGETHER = 8
"""Tokens that are sent together where the server waits for all of them."""
_AT_BEST = 0.9
"""Chance of a token on text that a draft model knows well: where not even that would pay, none is drafted."""
_LEAST_S = 1e-4

Passes = Callable[[Generator[Pass, Logits, Draft]], Draft]
"""Makes the passes of a draft."""


@dataclass(slots=True)
class _Chain:
    """What was proposed behind the text as it is confirmed, and what passes it took since the last word of the server."""

    drafter: str = ""
    tokens: list[int] = field(default_factory=list)
    chances: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    reach: float = 1.0
    passes: int = 0
    least_s: float = inf  # of a pass: the server's, beside some of them, are no fault of theirs
    waiting: int = 0  # of the tokens, the last that are not sent

    def add(self, draft: Draft, chances: Sequence[float]) -> None:
        self.drafter = draft.drafter
        self.tokens += draft.tokens
        self.gaps += draft.gaps
        self.chances += chances
        self.passes += draft.passes
        for each in chances:
            self.reach *= each

    def follow(self, tokens: Sequence[int]) -> Draft:
        """Take in what was confirmed: what still stands behind it stays; return what it shows of what was proposed."""
        count = len(tokens)
        first, gaps = tuple(self.tokens[:count]), tuple(self.gaps[:count])
        shown = Draft(first, (), self.drafter, gaps, passes=self.passes)
        right = first == tuple(tokens)
        for each in (self.tokens, self.chances, self.gaps):
            del each[: count if right else None]
        self.passes, self.least_s, self.reach = 0, inf, 1.0
        for chance in self.chances:
            self.reach *= chance
        self.waiting = min(self.waiting, len(self.tokens))
        return shown


class _Link:
    """The connection, read as frames come, so that it is known when each did.

    Args:
        connection: to the server.
    """

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._frames: queue.SimpleQueue[tuple[float, str | bytes | None]] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with suppress(WebSocketException, OSError, EOFError):
            for frame in self._connection:
                self._frames.put((time.monotonic(), frame))
        self._frames.put((time.monotonic(), None))

    def next(self, *, wait: bool) -> tuple[float, Confirmed | None] | None:
        """Return what came, and when: None is the end, or nonsense; nothing where nothing came and it is not waited for."""
        try:
            came_s, frame = self._frames.get(wait)
        except queue.Empty:
            return None
        return came_s, None if frame is None else decoded(frame, Confirmed)

    def propose(
        self, before: Sequence[int], tokens: Sequence[int], sure: Sequence[float], *, more: bool
    ) -> None:
        """Send tokens that may follow others; none says that nothing comes."""
        percent = tuple(round(100 * each) for each in sure)
        message = DraftProposal(len(before), checksum(before), tuple(tokens), percent, more)
        self._connection.send(encoded(message))


@dataclass(eq=False)
class Drafters:
    """What drafts for one answer after the other, and what it learnt.

    Args:
        lookup: copies from the text.
        model: asks a draft model; None without one.
    """

    lookup: LookupDrafter
    model: ModelDrafter | None = None
    ledger: DraftLedger = field(default_factory=lambda: DraftLedger(_EXPECTED))


class AnswerDrafts:
    """Proposes for one answer.

    Args:
        connection: to the server, from which nothing but what is confirmed comes from now on.
        prompt: of the answer.
        chooser: fixes every choice, as it does there.
        costs: of the server's passes.
        trip_s: of a round trip.
        drafters: what drafts.
        passes: makes their passes.
        ahead: whether to draft on while proposals are on their way.
    """

    def __init__(
        self,
        connection: ClientConnection,
        prompt: Sequence[int],
        chooser: Chooser,
        costs: PassCosts,
        trip_s: float,
        drafters: Drafters,
        passes: Passes,
        *,
        ahead: bool,
    ) -> None:
        self._link, self._text, self._chooser = _Link(connection), list(prompt), chooser
        self._costs, self._trip_s, self._ahead = RunningCosts(costs), trip_s, ahead
        self._most = min(LONGEST_DRAFT, costs.widths[-1] - 1)
        self._lookup, self._model, self._ledger = drafters.lookup, drafters.model, drafters.ledger
        self._passes, self._chain = passes, _Chain()
        self._is_idle = self._more = False

    def read(self) -> None:
        """Let the draft model read the prompt, while the server does."""
        self._ledger.begin()
        # Behind a pause it would have all of the prompt to catch up with, which is dearer than a try.
        self._ledger.pause = 0
        if self._model is not None:
            self._model.forget_costs()
            self._model.begin(self._text, self._chooser)
            # Beside a server elsewhere it is read in time that nobody else needs.
            if self._drafted(self._costs.upto(self._most + 1), reads=self._ahead)[0]:
                plan = Plan(self._model, 1)
                self._passes(self._model.propose(self._text, plan, self._chooser))

    def run(self) -> None:
        """Propose until the answer ends."""
        news = self._link.next(wait=True)
        if news is None or news[1] is None or not self._follows(news[1]):
            return
        self._text += news[1].tokens
        self._lookup.begin(self._text, self._chooser)
        since_s, goes_on = news[0], True
        while True:
            news = self._link.next(wait=not goes_on)
            if news is None:
                goes_on = self._extend()
                continue
            came_s, told = news
            if told is None or not self._follows(told):
                return
            self._learn(told, came_s - since_s)
            since_s, goes_on = came_s, True

    def _follows(self, told: Confirmed) -> bool:
        return told.at == len(self._text) and min(told.tokens, default=-1) >= 0

    def _learn(self, told: Confirmed, took_s: float) -> None:
        chain, costs, count = self._chain, self._costs, len(told.tokens)
        drafted = chain.drafter == ModelDrafter.name and (chain.passes or told.verified)
        if told.width and (told.width > 1 or self._ahead or not chain.passes):
            costs.add(told.width, max(_LEAST_S, took_s - told.waited))
        self._ledger.pause -= count
        if drafted:
            expected_s = costs.of(1 + told.verified) + told.waited
            took_s = min(max(took_s, expected_s / _DISTURBED), expected_s * _DISTURBED)
            self._ledger.settle(count, took_s / costs.of(1))
        # The first of several catches up.
        spent_s = chain.least_s * chain.passes if chain.passes > 1 else 0.0
        shown = chain.follow(told.tokens)
        same = (one == other for one, other in zip(shown.tokens, told.tokens, strict=False))
        accepted = next((at for at, right in enumerate(same) if not right), len(shown.tokens))
        verdict = Verdict(accepted, told.tokens[-1])
        done = Round(shown, verdict, told.tokens, Spent(draft_s=spent_s))
        self._lookup.learn(done)
        if self._model is not None:
            self._model.learn(done)
        self._text += told.tokens

    def _extend(self) -> bool:
        """Propose more behind what was proposed; return whether there is more to be drafted before the server says something."""
        chain = self._chain
        if not chain.tokens:
            seconds = self._costs.upto(self._most + 1)
            plain_s = seconds[0]
            copied, drafted = self._copied(seconds), self._drafted(seconds)
            if max(copied[1], drafted[1]) * plain_s <= _WORTH_A_TRY:
                return self._rest()
            if copied[1] >= drafted[1]:
                return self._copy()
        elif chain.drafter == LookupDrafter.name or not self._may_grow():
            return False
        return self._grow()

    def _may_grow(self) -> bool:
        """Return whether a draft of which some is left may be longer; where a server is here, it is in its pass."""
        if not self._ahead or self._model is None:
            return self._more
        return self._chain.tokens[-1] not in self._model.eog and self._goes_on()

    def _rest(self) -> bool:
        """Say once that nothing comes, so that nobody waits for it."""
        if not self._is_idle:
            self._is_idle = True
            self._link.propose(self._text, (), (), more=False)
        return False

    def _copied(self, seconds: Sequence[float]) -> tuple[int, float]:
        """Return how much of what is copied pays, and the rate."""
        forecast = self._lookup.forecast(self._text)
        chances = () if forecast is None else forecast.chances
        return best_length(chances, [seconds[0], *(each + self._trip_s for each in seconds[1:])])

    def _drafted(
        self, seconds: Sequence[float], known: Sequence[float] = (), *, reads: bool = False
    ) -> tuple[int, float]:
        """Return how far to draft by the model where the server waits for that, and the rate; 0 where it is not asked.

        Args:
            seconds: of the server's passes.
            known: chances of what is drafted already.
            reads: whether there is time to catch up with the text.
        """
        forecast = self._forecast
        if forecast is None or (self._ledger.pause > 0 and not known):
            return 0, 0.0
        round_s, usual = [seconds[0]], forecast.chances[0]
        if not reads and forecast.start_s > _MOST_LATE * seconds[0]:
            return 0, 0.0
        for length, pass_s in enumerate(seconds[1:], start=1):
            # What was spent on those that are known is spent, however this goes on.
            draft_s = max(0, length - len(known)) * forecast.step_s
            waits_s = draft_s + (0.0 if known else self._trip_s)
            if self._ahead:  # they are there unless some before them were wrong
                waits_s = max((1 - _AT_BEST**length) * waits_s, draft_s - pass_s)
            round_s.append(pass_s + waits_s)
        best = best_length([_AT_BEST] * self._most, round_s)
        if not known and best[1] * seconds[0] <= _WORTH_A_TRY:
            return 0, 0.0
        chances = [*known, *(usual,) * self._most]
        length, rate = best_length(chances, round_s)
        # Of the first tries, what they yielded counts more than what tokens are expected to.
        ledger = self._ledger.tokens / self._ledger.steps / seconds[0]
        return length, max(rate, ledger)

    @property
    def _forecast(self) -> DraftForecast | None:
        return (
            None
            if self._model is None
            else self._model.forecast([*self._text, *self._chain.tokens])
        )

    def _copy(self) -> bool:
        plan = Plan(self._lookup, LONGEST_DRAFT)
        draft = self._passes(self._lookup.propose(self._text, plan, self._chooser))
        if not draft.tokens:
            return self._rest()
        self._chain.add(draft, draft.confidences)
        self._send(len(draft.tokens), more=False)
        return False

    def _grow(self) -> bool:
        """Draft one token more by the model."""
        chain, model = self._chain, self._model
        assert model is not None, "it drafts"  # noqa: S101
        prefix, start_s = [*self._text, *chain.tokens], time.monotonic()
        draft = self._passes(model.propose(prefix, Plan(model, 1), self._chooser))
        if draft.passes:
            chain.least_s = min(chain.least_s, (time.monotonic() - start_s) / draft.passes)
        if not draft.tokens:
            chain.passes += draft.passes
            return self._rest()
        chain.add(draft, [model.chance(gap) for gap in draft.gaps])
        chain.waiting += len(draft.tokens)
        self._more = more = draft.tokens[-1] not in model.eog and self._goes_on()
        if self._ahead or not more or chain.waiting >= _TOGETHER:
            self._send(chain.waiting, more=more)
        return more

    def _goes_on(self) -> bool:
        """Return whether what is drafted is to be longer."""
        chain = self._chain
        if self._ahead:
            return chain.reach >= _LEAST_REACH and len(chain.tokens) < _AHEAD
        length, _ = self._drafted(self._costs.upto(self._most + 1), chain.chances)
        return length > len(chain.tokens)

    def _send(self, count: int, *, more: bool) -> None:
        """Send the last tokens of the chain."""
        chain = self._chain
        chain.waiting, self._is_idle, self._more = 0, False, more
        at = len(chain.tokens) - count
        before = [*self._text, *chain.tokens[:at]]
        self._link.propose(before, chain.tokens[at:], chain.chances[at:], more=more)
