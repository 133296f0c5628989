"""Race: one prompt and seed, answered with drafting and then without, and what came of it.

Not at the same time: they would take each other's cores, and the times would mean nothing. Both begin with the same
part of the engine's cache, and the conversation beside which they run finds its own again.
"""

import math
import secrets
import statistics
from contextlib import aclosing
from dataclasses import replace
from itertools import pairwise

import msgspec

from localspec.chat.request import Request
from localspec.decoding.round import OFF
from localspec.display import TIMES
from localspec.engine.engine import Engine, EngineGone
from localspec.errors import LocalspecError
from localspec.tui.exchange import Exchange

_MOST_TOKENS, _SEED_BITS = 256, 32
# Speeds are compared over as many stretches of the text; one of fewer tokens has none.
_STRETCHES, _LEAST_TOKENS = 8, 64
# One lane follows the other: what slows the machine meanwhile slows only one of them, in all of its stretches.
_STANDARD_ERRORS, _LEAST_GAIN = 4.0, math.log(1.05)
LANES = ("with drafting", "without")


class Race:
    """Two requests, of which the second starts when the first is done.

    Args:
        engine: answers.
        request: the conversation; both answers get one seed, and no more tokens than a user waits for.

    Attributes:
        lanes: the requests: with drafting, and without once it has begun.
        done: whether both have ended, or one that ended puts an end to the race.
        ended: why there is nothing to compare; empty where there is, or will be.
    """

    def __init__(self, engine: Engine, request: Request) -> None:
        options = request.options
        seed = secrets.randbits(_SEED_BITS) if options.seed is None else options.seed
        most = min(options.max_tokens or _MOST_TOKENS, _MOST_TOKENS)
        options = replace(options, seed=seed, max_tokens=most)
        self._engine = engine
        self._request = msgspec.structs.replace(request, options=options, ephemeral=True)
        self.lanes: list[Exchange] = []
        self.done, self.ended = False, ""

    async def run(self) -> None:
        """Answer with drafting, then without, from as much of the cache."""
        request, self.done = self._request, False
        try:
            while len(self.lanes) < len(LANES):
                self.lanes.append(lane := Exchange(request))
                async with aclosing(self._engine.stream(request, lane.begin)) as events:
                    async for event in events:
                        lane.take(event)
                if lane.cancelled:
                    self.ended = "stopped: there is nothing to compare"
                    break
                keep = lane.started.cached_tokens if lane.started else None
                request = msgspec.structs.replace(request, draft=OFF, keep=keep)
        except LocalspecError as error:
            gone = "; there is nothing to compare" if isinstance(error, EngineGone) else ""
            self.ended = f"{error}{gone}"
        finally:
            if len([each for each in self.lanes if each.done]) < len(LANES):
                self.ended = self.ended or "stopped: there is nothing to compare"
            self.done = True

    def stop(self) -> None:
        """Stop the one that runs."""
        if not self.done and self.lanes and self.lanes[-1].number is not None:
            self._engine.cancel(self.lanes[-1].number)

    def verdict(self) -> str:
        """Return the outcome in a sentence; what there is of it while it runs."""
        if not self.done or self.ended:
            return (
                self.ended or f"{LANES[0]} first, then {LANES[1]}, so that neither slows the other"
            )
        # Passes of different widths round differently.
        texts = [each.thoughts + each.answer for each in self.lanes]
        pairs = enumerate(zip(*texts, strict=False))
        same = next((at for at, (one, other) in pairs if one != other), min(map(len, texts)))
        fork = f"differ after {same} characters, as they may when two tokens are nearly tied"
        return f"{_gain(*self.lanes)}; the texts {'are equal' if len({*texts}) == 1 else fork}"


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
    return f"drafting {TIMES}{math.exp(gain):.2f}; {counts}"
