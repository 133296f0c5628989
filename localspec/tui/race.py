"""Race: the same prompt and seed with and without drafting, one after the other, and what came of it.

Not at the same time: they would take each other's cores, and the times would mean nothing. Both begin with the same
part of the engine's cache, and the conversation beside which they run finds its own again.
"""

import math
import secrets
import statistics
from dataclasses import dataclass, field, replace
from itertools import pairwise

from localspec.decoding.round import OFF, StopReason
from localspec.engine.client import EngineClient
from localspec.engine.protocol import EngineDied, Notice
from localspec.messages import Message
from localspec.options import ReplyOptions
from localspec.tui.exchange import Exchange
from localspec.tui.stats import TIMES

_MOST_TOKENS = 256
_SEED_BITS = 32
# Speeds are compared over as many stretches of the text; one of fewer tokens says nothing.
_STRETCHES, _LEAST_TOKENS = 8, 64
_STANDARD_ERRORS = 4.0
# One lane follows the other: what slows the machine meanwhile slows only one of them, in all of its stretches.
_LEAST_GAIN = math.log(1.05)


@dataclass(slots=True)
class Race:
    """Two requests, of which the second starts when the first is done.

    Args:
        engine: answers.
        messages: what is answered.
        options: with a seed, so that both answers are one and the same.

    Attributes:
        lanes: the requests: with drafting, and without once it has begun.
    """

    engine: EngineClient
    messages: tuple[Message, ...]
    options: ReplyOptions
    lanes: list[Exchange] = field(default_factory=list)
    _died: str = ""

    @property
    def _ended(self) -> str:
        """Why there is nothing to compare; empty where there is, or will be."""
        for lane in self.lanes:
            if lane.failure:
                return lane.failure.reason
            if lane.finished and lane.finished.reply.stop_reason is StopReason.CANCELLED:
                return "stopped: there is nothing to compare"
        return self._died and f"{self._died}; there is nothing to compare"

    @property
    def done(self) -> bool:
        """Whether both have ended, or one that ended puts an end to the race, or the engine is gone."""
        return bool(self._ended) or (len(self.lanes) == 2 and all(e.done for e in self.lanes))

    @property
    def texts(self) -> list[str]:
        """What the requests have come to, thoughts included."""
        return [each.thoughts + each.answer for each in self.lanes]

    def start(self) -> None:
        """Ask for the first answer, with drafting."""
        self._ask(None)

    def take(self, notice: Notice) -> bool:
        """Take a notice; return whether it was for this race, and for nobody else."""
        if isinstance(notice, EngineDied) and not self.done:
            self._died = notice.reason
        taken = any(lane.take(notice) for lane in self.lanes)
        if len(self.lanes) == 1 and self.lanes[0].finished is not None and not self.done:
            self._ask(OFF)
        return taken

    def stop(self) -> None:
        """Stop the one that runs."""
        for lane in self.lanes:
            if not lane.done:
                self.engine.cancel(lane.id)

    def fork(self) -> int | None:
        """Return where the two texts begin to differ; None where one is the beginning of the other.

        Source of a difference, if there is one: passes of different widths round differently.
        """
        if len(self.lanes) < 2:
            return None
        pairs = enumerate(zip(*self.texts, strict=False))
        return next((index for index, (one, other) in pairs if one != other), None)

    def verdict(self) -> str:
        """Return the outcome in a sentence; what there is of it while it runs."""
        if self._ended:
            return self._ended
        if not self.done:
            return "with drafting first, then without, so that each has the whole machine"
        one, other = self.texts
        if one == other:
            texts = "the texts are equal"
        else:
            at = min(len(one), len(other)) if (fork := self.fork()) is None else fork
            texts = f"the texts differ from character {at + 1} on, as they may when two tokens are nearly tied"
        return f"{_outcome(*self.lanes)}; {texts}"

    def _ask(self, draft: str | None) -> None:
        started = self.lanes[0].started if self.lanes else None
        keep = None if started is None else started.cached_tokens
        number = self.engine.ask(
            self.messages, self.options, draft=draft, ephemeral=True, keep=keep
        )
        self.lanes.append(Exchange(number, self.messages))


def race_of(engine: EngineClient, messages: tuple[Message, ...], options: ReplyOptions) -> Race:
    """Start a race over one prompt; of a length that nobody waits long for, and with one seed."""
    seed = secrets.randbits(_SEED_BITS) if options.seed is None else options.seed
    most = min(options.max_tokens or _MOST_TOKENS, _MOST_TOKENS)
    race = Race(engine, messages, replace(options, seed=seed, max_tokens=most))
    race.start()
    return race


def _outcome(with_draft: Exchange, without: Exchange) -> str:
    """Return what drafting gained, with a figure where that is beyond noise, and how many drafted tokens were accepted."""
    if not with_draft.drafted:
        return with_draft.no_drafting or "nothing was drafted"
    counts = f"{with_draft.accepted} of {with_draft.drafted} drafted tokens accepted"
    gains = _gains(with_draft, without)
    if not gains:
        return f"too short to tell; {counts}"
    gain = statistics.fmean(gains)
    noise = _STANDARD_ERRORS * statistics.stdev(gains) / math.sqrt(len(gains))
    if abs(gain) <= max(noise, _LEAST_GAIN):
        return f"no clear difference in speed; {counts}"
    low, high = math.exp(gain - noise), math.exp(gain + noise)
    return f"drafting {TIMES} {math.exp(gain):.2f} ({low:.2f} to {high:.2f}); {counts}"


def _gains(with_draft: Exchange, without: Exchange) -> list[float]:
    """Return the logarithm of the speed-up in every stretch of the text; nothing where it is too short."""
    fast, slow = map(_token_seconds, (with_draft, without))
    many = min(len(fast), len(slow))
    if many < _LEAST_TOKENS:
        return []
    edges = [many * at // _STRETCHES for at in range(_STRETCHES + 1)]
    sums = [(sum(fast[start:end]), sum(slow[start:end])) for start, end in pairwise(edges)]
    return [math.log(other / one) for one, other in sums] if all(map(all, sums)) else []


def _token_seconds(lane: Exchange) -> list[float]:
    """Return what each token took; those of one round share its time."""
    return [each.spent.wall_s / len(each.confirmed) for each in lane.rounds for _ in each.confirmed]
