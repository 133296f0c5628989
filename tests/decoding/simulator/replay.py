"""Replay: settings on the coins of a world, without the loop.

`test_simulation.py` shows that a replay and the loop agree to the last pass.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from localspec.decoding.model import Role
from tests.decoding.simulator.loop import Account, Seconds
from tests.decoding.simulator.world import World

LONGEST_COPY = 32
_TRIED = 16
_SMALL_LAG = 16


@dataclass(frozen=True, slots=True)
class Choice:
    """What to do in a regime."""

    model_length: int = 0  # tokens to draft with the model, where nothing is copied
    copy_length: int = 0  # tokens to copy where a match is found
    min_match: int = 2  # tokens that make a match


@dataclass(frozen=True, slots=True)
class Matches:
    """By position: how long the longest earlier match is, and how many of its tokens follow."""

    lengths: list[int]
    hits: list[int]


def find_matches(world: World) -> Matches:
    """Follow the text once; the longest match wins, the latest among equals."""
    text, n = world.text, len(world.text)
    lengths, hits = [0] * n, [0] * n
    ends: dict[tuple[int, int], list[int]] = {}
    for end in range(2, n):
        pair = (text[end - 2], text[end - 1])
        earlier = ends.setdefault(pair, [])
        best_end = best = 0
        for other in reversed(earlier[-_TRIED:]):
            length = 2
            while (
                length < min(LONGEST_COPY, other)
                and text[other - length - 1] == text[end - length - 1]
            ):
                length += 1
            if length > best:
                best_end, best = other, length
        earlier.append(end)
        lengths[end] = best
        if best:
            most = min(LONGEST_COPY, n - end)
            hits[end] = next((i for i in range(most) if text[best_end + i] != text[end + i]), most)
    return Matches(lengths, hits)


@dataclass(slots=True, eq=False)
class Replay:
    """Replays settings on the coins of one world."""

    world: World
    matches: Matches
    _agrees: list[bool]
    _cached: int = 0

    @classmethod
    def of(cls, world: World) -> "Replay":
        assert world.adversary is None, "what it will do is known only to the loop"
        agrees = world.coins < world.agreement
        return cls(world, find_matches(world), agrees.tolist())

    def seconds(self, choices: Mapping[int, Choice]) -> Seconds:
        """Return what it takes to do as `choices` say, by regime."""
        account, self._cached = Account(), 0
        regimes = self.world.regimes.tolist()
        for start, end in self.world.turns:
            account.add(1, 0.0)
            n = start + 1
            self._cached = min(self._cached, start)
            while n < end:
                n_tokens, seconds = self._round(n, end - n, choices[regimes[n]])
                account.add(n_tokens, seconds)
                n += n_tokens
        return account.by_token()

    def _round(self, n: int, room: int, choice: Choice) -> tuple[int, float]:
        if choice.copy_length and self.matches.lengths[n] >= choice.min_match:
            length = min(choice.copy_length, room - 1)
            accepted = min(self.matches.hits[n], length)
            return accepted + 1, self._target_seconds(n, length)
        length, drafting = 0, 0.0
        most = min(choice.model_length, room - 1)
        if most > 0:
            length, drafting = most, self._draft(n, most)
        accepted = 0
        while accepted < length and self._agrees[n + accepted]:
            accepted += 1
        if length:
            self._cached = n + min(accepted, length - 1)
        return accepted + 1, drafting + self._target_seconds(n, length)

    def _draft(self, n: int, length: int) -> float:
        seconds, lag = 0.0, n - self._cached
        if lag > _SMALL_LAG:  # evaluated first, as the drafter does
            seconds, lag = self.world.seconds(Role.DRAFT_MODEL, lag - 1, n - 1, n), 1
        for at in range(length):
            seconds += self.world.seconds(Role.DRAFT_MODEL, lag if at == 0 else 1, n + at, n)
        return seconds

    def _target_seconds(self, n: int, length: int) -> float:
        return self.world.seconds(Role.TARGET, length + 1, n + length, n)
