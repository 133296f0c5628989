"""Round: one propose and verify cycle, what it confirmed, and what it cost. Values alone: cheap to import."""

from dataclasses import dataclass, fields, replace
from enum import Enum
from operator import add, attrgetter

OFF = "off"
"""The drafter's name where nothing was drafted."""
SERVER = "server"
"""The drafter's name where a server answered, which sends no rounds."""
PROMPT = "prompt"
"""The drafter's name of the first token, which the prompt's own evaluation gives."""
GAPS = (0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0)
"""Bounds of the buckets of gaps, see `Draft.gaps`, by which it is counted what was accepted."""


class StopReason(Enum):
    """Why a generation ended."""

    EOG = "eog"
    LENGTH = "length"
    STOP_STRING = "stop_string"
    TOOL_CALL = "tool_call"
    LOOP = "loop"
    CANCELLED = "cancelled"
    CONTEXT_FULL = "context_full"
    GATED = "gated"


@dataclass(frozen=True, slots=True)
class Draft:
    """One proposal.

    Args:
        tokens: in order.
        confidences: how sure the drafter was of each, 0 to 1.
        drafter: its name.
        gaps: by how much each beat the second best under the shared noise, in units of log weight;
            empty if the drafter does not know.
        alternatives: the drafter's second and third choice for each, best first; empty if it does not know.
        branches: places of tokens whose second choice is verified, too; descending.
        passes: of a draft model, that it took.
    """

    tokens: tuple[int, ...] = ()
    confidences: tuple[float, ...] = ()
    drafter: str = OFF
    gaps: tuple[float, ...] = ()
    alternatives: tuple[tuple[int, ...], ...] = ()
    branches: tuple[int, ...] = ()
    passes: int = 0

    def until(self, count: int) -> "Draft":
        """Return the draft of the first `count` tokens."""
        first = slice(count)
        return replace(
            self,
            tokens=self.tokens[first],
            confidences=self.confidences[first],
            gaps=self.gaps[first],
            alternatives=self.alternatives[first],
            branches=tuple(at for at in self.branches if at < count),
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a draft.

    Args:
        accepted: how many drafted tokens the target would have chosen itself, from the first on.
        next_token: the target's choice after them: the correction of the first token that it
            would not have chosen, or the bonus if all were accepted, or a branch was.
        branch: the second choice that the target chose instead of the first token that was not accepted; it comes
            before `next_token`. None if no branch was accepted.
    """

    accepted: int
    next_token: int
    branch: int | None = None

    @property
    def choices(self) -> tuple[int, ...]:
        """What the target said after the accepted tokens."""
        return (self.next_token,) if self.branch is None else (self.branch, self.next_token)

    @property
    def confirmed(self) -> int:
        """How many tokens it confirms."""
        return self.accepted + (1 if self.branch is None else 2)


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds that one round took, by stage; of a pass shared with other sequences, this one's share.

    Args:
        draft_prefill_s: evaluating what the draft model had not followed, before it could propose.
        draft_s: passes of the draft model for the draft, and lookups.
        verify_s: the target's pass.
        sample_s: choosing tokens, for the draft and for the verdict.
        truncate_s: removing rejected tokens from the caches.
        other_s: everything else since the round before: text, and its readers.
    """

    draft_prefill_s: float = 0.0
    draft_s: float = 0.0
    verify_s: float = 0.0
    sample_s: float = 0.0
    truncate_s: float = 0.0
    other_s: float = 0.0

    @property
    def round_s(self) -> float:
        """The round itself, without what lies between two rounds."""
        passes_s = self.draft_prefill_s + self.draft_s + self.verify_s
        return passes_s + self.sample_s + self.truncate_s

    @property
    def wall_s(self) -> float:
        """The round and what lies between it and the one before."""
        return self.round_s + self.other_s

    @property
    def drafting_s(self) -> float:
        """Drafting, with what the draft model had to catch up with."""
        return self.draft_prefill_s + self.draft_s

    @property
    def aside_s(self) -> float:
        """All but drafting and the target's pass."""
        return self.sample_s + self.truncate_s + self.other_s

    def __add__(self, other: "Spent") -> "Spent":
        """Return the sums, stage by stage."""
        return Spent(*map(add, _stages(self), _stages(other)))


_stages = attrgetter(*(stage.name for stage in fields(Spent)))


@dataclass(frozen=True, slots=True)
class Round:
    """One propose and verify cycle.

    Args:
        draft: what was proposed.
        verdict: what the target made of it.
        confirmed: the tokens that it adds to the text: the accepted ones and the target's next, cut
            at the end of the generation; never empty.
        spent: what it cost.
    """

    draft: Draft
    verdict: Verdict
    confirmed: tuple[int, ...]
    spent: Spent = Spent()

    @property
    def is_first(self) -> bool:
        """Whether this is the first token, which the prompt's own evaluation gives."""
        return self.draft.drafter == PROMPT

    @property
    def drafted(self) -> int:
        """How many tokens were proposed."""
        return len(self.draft.tokens)

    @property
    def accepted(self) -> int:
        """How many proposed tokens are in the text."""
        return min(self.verdict.accepted, len(self.confirmed))

    @property
    def width(self) -> int:
        """Tokens that the target's pass had for it."""
        return 1 + len(self.draft.tokens) + len(self.draft.branches)

    @property
    def branched(self) -> int:
        """How many second choices were verified."""
        return len(self.draft.branches)

    @property
    def caught(self) -> int:
        """How many of them are in the text: 0 or 1."""
        return int(self.verdict.branch is not None and len(self.confirmed) > self.verdict.accepted)

    @property
    def origins(self) -> tuple[str, ...]:
        """Where each confirmed token came from.

        `first` (the prompt's own evaluation), `plain` (a round without a draft), `correction` or
        `bonus` (the target's, after a rejected token, or an accepted end of the draft or branch), else the
        drafter's name.
        """
        if self.is_first:
            return ("first",)
        verdict, n_accepted = self.verdict, self.verdict.confirmed - 1
        ended = verdict.branch is not None or verdict.accepted == self.drafted
        last = ("bonus" if ended else "correction") if self.drafted else "plain"
        return (*[self.draft.drafter] * n_accepted, last)[: len(self.confirmed)]

    @property
    def correction_rank(self) -> int | None:
        """The correction's place among the drafter's choices, 2 for its second, whether or not that was a branch.

        None if nothing was corrected, or the correction is not among the first three.
        """
        at, draft = self.verdict.accepted, self.draft
        if at >= min(len(draft.tokens), len(draft.alternatives)):
            return None
        others = draft.alternatives[at]
        token = self.verdict.choices[0]
        return others.index(token) + 2 if token in others else None
