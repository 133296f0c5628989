"""What drafting gains by going on while the target verifies, from costs of passes and how often drafts survive: arithmetic alone."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lab.simulator.costs import PUBLISHED, Q4_K_M
from lab.simulator.world import TrueCosts

LENGTHS = range(1, 17)
CHEAPER = 3
"""Of what was published as F16, a Q4 file has about so much fewer bytes, which is what a step takes."""


@dataclass(frozen=True, slots=True)
class RoundSeconds:
    """What the parts of a round take.

    Args:
        draft_s: drafting, with catching up.
        step_s: one token more.
        verify_s: the target's pass.
    """

    draft_s: float
    step_s: float
    verify_s: float

    @property
    def in_turns_s(self) -> float:
        """A round of drafting and then verifying."""
        return self.draft_s + self.verify_s

    def overlapped_s(self, survival: float) -> float:
        """Return the mean of a round whose draft was made while the target verified the one before.

        The draft that is made meanwhile has one token more: a guess of the bonus. Where it is dropped, half a step is lost
        if one was under way.

        Args:
            survival: share of rounds that begin with a draft.
        """
        ahead_s = self.draft_s + self.step_s
        lost_s = self.step_s / 2 if ahead_s > self.verify_s else 0.0
        return survival * max(ahead_s, self.verify_s) + (1 - survival) * (self.in_turns_s + lost_s)

    def gain(self, survival: float) -> float:
        """Return the speed of overlapped rounds over those in turns."""
        return self.in_turns_s / self.overlapped_s(survival)


def survival_needed(draft_share: float, gain: float = 1.1) -> float:
    """Return how many drafts have to survive for a gain, where drafting takes no longer than verifying.

    Args:
        draft_share: seconds of drafting over seconds of verifying.
        gain: of speed, over in turns.
    """
    return (1 - 1 / gain) * (1 + draft_share) / draft_share


class Rounds(NamedTuple):
    """Counts over rounds of one draft length."""

    rounds: int
    confirmed: int
    survived: int

    @property
    def length(self) -> float:
        """Mean of confirmed tokens."""
        return self.confirmed / self.rounds

    @property
    def survival(self) -> float:
        """Share of rounds that begin with a draft from the round before."""
        return self.survived / self.rounds


def rounds_of(texts: Iterable[Sequence[bool]], length: int) -> Rounds:
    """Return which rounds there are in texts.

    Args:
        texts: of each token, whether the draft model proposes it where all before it is the text.
        length: of drafts.
    """
    rounds = confirmed = survived = 0
    for hits in texts:
        at = 0
        while at < len(hits):
            known = hits[at : at + length]
            accepted = known.index(False) if False in known else len(known)
            bonus = at + accepted
            rounds += 1
            confirmed += min(accepted + 1, len(hits) - at)
            at = bonus + 1
            survived += accepted == length and at < len(hits) and hits[bonus]
    return Rounds(rounds, confirmed, survived)


def seconds_of(costs: TrueCosts, step_s: float, length: int) -> RoundSeconds:
    """Return what a round takes by a table of costs."""
    return RoundSeconds(length * step_s, step_s, costs.target.of(length + 1))


class Best(NamedTuple):
    """The fastest draft length, and its speed over plain decoding."""

    speed: float
    length: int


def best(
    texts: Sequence[Sequence[bool]], costs: TrueCosts, step_s: float, *, overlapped: bool
) -> Best:
    """Return how texts are said fastest with drafts of one length; 0 is plain decoding."""
    found = [Best(1.0, 0)]
    for length in LENGTHS:
        seconds, rounds = seconds_of(costs, step_s, length), rounds_of(texts, length)
        round_s = seconds.overlapped_s(rounds.survival) if overlapped else seconds.in_turns_s
        found.append(Best(rounds.length * costs.target.of(1) / round_s, length))
    return max(found)


_HEADS = (
    *("target", "kind", "step", "in turns", "overlapped", "gain"),
    *("a third of the step: in turns", "overlapped", "gain"),
    *("two CPU cores draft, overlapped", "over in turns"),
)


def worth_table(kinds: Mapping[str, Sequence[Sequence[bool]]]) -> list[str]:
    """Return lines of a table: published costs of targets, and draft models in turns with them or on a device of their own."""
    lines = [f"| {' | '.join(_HEADS)} |", "|---" * len(_HEADS) + "|"]
    for name, costs in PUBLISHED.items():
        plain_s, step_s = costs.target.of(1), costs.draft.of(1)
        for kind, texts in kinds.items():
            cells = [f"{step_s / plain_s:.2f}"]
            turns = []
            for own_s in (step_s, step_s / CHEAPER):
                turns.append(best(texts, costs, own_s, overlapped=False))
                beside = best(texts, costs, own_s, overlapped=True)
                cells += [_cell(turns[-1]), _cell(beside), f"{beside.speed / turns[-1].speed:.2f}"]
            slow = best(texts, costs, Q4_K_M.draft.of(1), overlapped=True)
            cells += [_cell(slow), f"{slow.speed / turns[0].speed:.2f}"]
            lines.append(f"| `{name}` | {kind} | {' | '.join(cells)} |")
    return lines


def _cell(found: Best) -> str:
    return f"{found.speed:.2f} ({found.length})"
