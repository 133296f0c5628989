"""Trial: the figures of one run, and which run it was."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from localspec.api import Round
from localspec.decoding.gain import Gain


@dataclass(frozen=True, slots=True)
class Slot:
    """One run.

    Args:
        prompt: its index.
        temperature: of the sampling.
        repeat: which repeat.
        mode: name of the arm that runs.
        group: runs of one number are neighbours, one of them is of the first arm; counted in each repeat.
    """

    prompt: int
    temperature: float
    repeat: int
    mode: str
    group: int


@dataclass(frozen=True, slots=True)
class Arrival:
    """So many tokens were confirmed so many seconds after the request."""

    n_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Trial:
    """The figures of one run.

    Args:
        slot: which run it was.
        tokens: ids of the answer, what ended it included where it is known.
        arrivals: ascending; the last one holds all tokens.
        prefill_s: evaluating the prompt; 0 where another program does not say.
        rounds: empty where another program does not say.
        drafted: tokens proposed.
        accepted: how many of them came through.
        gain: what drafting gained, as every answer shows it; None where that is not known.
    """

    slot: Slot
    tokens: tuple[int, ...]
    arrivals: tuple[Arrival, ...]
    prefill_s: float
    rounds: tuple[Round, ...]
    drafted: int
    accepted: int
    gain: Gain | None = None

    @property
    def n_tokens(self) -> int:
        """Tokens that were confirmed."""
        return self.arrivals[-1].n_tokens

    @property
    def wall_s(self) -> float:
        """Seconds from the request to the last token."""
        return self.arrivals[-1].seconds

    @property
    def first_token_s(self) -> float:
        """Seconds from the request to the first token."""
        return self.arrivals[0].seconds

    def token_s(self, n_tokens: int) -> float:
        """Return the seconds per token when at least `n_tokens` were confirmed, prefill included."""
        at = bisect_left([arrival.n_tokens for arrival in self.arrivals], n_tokens)
        arrival = self.arrivals[min(at, len(self.arrivals) - 1)]
        return arrival.seconds / arrival.n_tokens


def speed_ratio(trial: Trial, off: Trial) -> float:
    """Return how many times as fast as `off` a run was, at equal lengths.

    Where one of two texts ends earlier, both are timed up to that length.
    """
    n_tokens = min(trial.n_tokens, off.n_tokens)
    return off.token_s(n_tokens) / trial.token_s(n_tokens)


def log_ratio(trial: Trial, off: Trial) -> float:
    """Return the logarithm of `speed_ratio`."""
    return math.log(speed_ratio(trial, off))


def neighbours(trials: Sequence[Trial], first: str) -> list[tuple[Trial, Trial]]:
    """Return every run of another arm with its neighbour of the first."""
    groups: dict[tuple[object, ...], dict[str, Trial]] = {}
    for trial in trials:
        slot = trial.slot
        key = (slot.prompt, slot.temperature, slot.repeat, slot.group)
        groups.setdefault(key, {})[slot.mode] = trial
    return [
        (trial, group[first])
        for group in groups.values()
        if first in group
        for name, trial in group.items()
        if name != first
    ]


def fork(tokens: Sequence[int], others: Sequence[int]) -> int | None:
    """Return the first position where two texts differ; None where they are the same."""
    if tokens == others:
        return None
    pairs = zip(tokens, others, strict=False)
    differing = (index for index, (one, other) in enumerate(pairs) if one != other)
    return next(differing, min(len(tokens), len(others)))
