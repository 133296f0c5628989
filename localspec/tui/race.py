"""Race: one prompt and seed, answered with drafting and then without, and what came of it.

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

_MOST_TOKENS, _SEED_BITS = 256, 32
# Speeds are compared over as many stretches of the text; one of fewer tokens has none.
_STRETCHES, _LEAST_TOKENS = 8, 64
# One lane follows the other: what slows the machine meanwhile slows only one of them, in all of its stretches.
_STANDARD_ERRORS, _LEAST_GAIN = 4.0, math.log(1.05)
LANES = ("with drafting", "without")


@dataclass(slots=True)
class Race:
    """Two requests, of which the second starts when the first is done.

    Args:
        engine: answers.
        messages: the conversation.
        options: of the answers; both get one seed, and no more tokens than a user waits for.

    Attributes:
        lanes: the requests: with drafting, and without once it has begun.
        ended: why there is nothing to compare; empty where there is, or will be.
    """

    engine: EngineClient
    messages: tuple[Message, ...]
    options: ReplyOptions
    lanes: list[Exchange] = field(default_factory=list)
    ended: str = ""

    def start(self) -> None:
        """Request the first answer."""
        seed, most = self.options.seed, self.options.max_tokens or _MOST_TOKENS
        seed = secrets.randbits(_SEED_BITS) if seed is None else seed
        self.options = replace(self.options, seed=seed, max_tokens=min(most, _MOST_TOKENS))
        self._request(None, None)

    @property
    def done(self) -> bool:
        """Whether both have ended, or one that ended puts an end to the race, or the engine is gone."""
        return bool(self.ended) or (len(self.lanes) == len(LANES) and self.lanes[-1].done)

    @property
    def texts(self) -> list[str]:
        """What the requests have come to, thoughts included."""
        return [each.thoughts + each.answer for each in self.lanes]

    def take(self, notice: Notice) -> bool:
        """Take a notice; return whether it was for this race alone."""
        lane = self.lanes[-1]
        if isinstance(notice, EngineDied) and not self.done:
            self.ended = f"{notice.reason}; there is nothing to compare"
        if not lane.take(notice):
            return False
        if lane.failure is not None:
            self.ended = lane.failure.reason
        elif lane.finished and lane.finished.reply.stop_reason is StopReason.CANCELLED:
            self.ended = "stopped: there is nothing to compare"
        elif lane.finished and not self.done:
            self._request(OFF, lane.started.cached_tokens if lane.started else None)
        return True

    def stop(self) -> None:
        """Stop the one that runs."""
        if not self.done:
            self.engine.cancel(self.lanes[-1].id)

    def verdict(self) -> str:
        """Return the outcome in a sentence; what there is of it while it runs."""
        if not self.done or self.ended:
            return self.ended or f"{LANES[0]} first, then {LANES[1]}: each has the whole machine"
        # Passes of different widths round differently.
        fork = f"differ after {len(common(self.texts))} characters, as they may when two tokens are nearly tied"
        return f"{_gain(*self.lanes)}; the texts {'are equal' if len({*self.texts}) == 1 else fork}"

    def _request(self, draft: str | None, keep: int | None) -> None:
        number = self.engine.ask(
            self.messages, self.options, draft=draft, ephemeral=True, keep=keep
        )
        self.lanes.append(Exchange(number, self.messages))


def common(texts: list[str]) -> str:
    """Return the part of a text before it differs from another."""
    one, other = texts
    return one[
        : next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    ]


def _gain(*lanes: Exchange) -> str:
    """Return what drafting gained, with a figure where that is beyond noise, and how many drafted tokens were accepted."""
    drafted = sum(each.drafted for each in lanes[0].rounds)
    if not drafted:
        return lanes[0].no_drafting or "nothing was drafted"
    counts = f"{sum(e.accepted for e in lanes[0].rounds)} of {drafted} drafted tokens accepted"
    fast, slow = (
        [each.spent.wall_s / len(each.confirmed) for each in lane.rounds for _ in each.confirmed]
        for lane in lanes
    )
    many = min(len(fast), len(slow))
    if many < _LEAST_TOKENS:
        return f"too short to tell; {counts}"
    edges = pairwise(many * at // _STRETCHES for at in range(_STRETCHES + 1))
    gains = [math.log(sum(slow[i:j]) / (sum(fast[i:j]) or 1e-9) or 1e-9) for i, j in edges]
    gain, noise = statistics.fmean(gains), statistics.stdev(gains) / math.sqrt(_STRETCHES)
    if abs(gain) <= max(_STANDARD_ERRORS * noise, _LEAST_GAIN):
        return f"no clear difference in speed; {counts}"
    return f"drafting {TIMES} {math.exp(gain):.2f}; {counts}"
