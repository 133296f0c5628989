"""Drafter: whatever proposes the next tokens. Draft: one proposal."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from localspec.decoding.choose import Chooser, Ranking
from localspec.decoding.model import Logits, Pass


@dataclass(frozen=True, slots=True)
class Hindsight:
    """What a drafter would have proposed for a token that is known by now.

    Args:
        gap: by how much its choice beat the second best; see `Draft`.
        hit: whether the text says the same.
    """

    gap: float
    hit: bool


@dataclass(frozen=True, slots=True)
class Draft:
    """One proposal.

    Args:
        tokens: in order.
        confidences: how sure the drafter was of each, 0 to 1.
        drafter: its name.
        gaps: by how much each beat the second best under the shared noise, in units of log weight,
            those withheld included; empty where the drafter knows no such thing.
        withheld: tokens that were proposed after these, and are not worth verifying.
        rankings: who else came near each, those withheld included; empty where the drafter knows
            no such thing.
        hindsight: what it would have proposed for the tokens before these, as far as it was asked.
    """

    tokens: tuple[int, ...] = ()
    confidences: tuple[float, ...] = ()
    drafter: str = "off"
    gaps: tuple[float, ...] = ()
    withheld: tuple[int, ...] = ()
    rankings: tuple[Ranking, ...] = field(default=(), compare=False, repr=False)
    hindsight: tuple[Hindsight, ...] = ()


class Stopping(Protocol):
    """Says, while a draft grows, whether its next token is worth a pass of the draft model."""

    @property
    def look_back(self) -> int:
        """How many of the latest tokens of the text a drafter compares with its own choices first."""
        ...

    def begins(self, hindsight: Sequence[Hindsight]) -> bool:
        """Say whether to propose anything, after that comparison."""
        ...

    def goes_on(self, gaps: Sequence[float]) -> bool:
        """Say whether to propose another token after those with these `gaps`."""
        ...

    def keeps(self, gaps: Sequence[float]) -> int:
        """Say how many of the proposed tokens the target is to verify."""
        ...


class NeverStopping:
    """Drafts as far as it may."""

    look_back = 0

    def begins(self, hindsight: Sequence[Hindsight]) -> bool:  # noqa: ARG002 - the protocol's signature
        """Always begin."""
        return True

    def goes_on(self, gaps: Sequence[float]) -> bool:  # noqa: ARG002 - the protocol's signature
        """Always go on."""
        return True

    def keeps(self, gaps: Sequence[float]) -> int:
        """Keep all."""
        return len(gaps)


class Drafter(Protocol):
    """Proposes continuations. Nothing it does can change the text, only the speed."""

    @property
    def name(self) -> str:
        """One word for figures and screens."""
        ...

    def propose(
        self, tokens: Sequence[int], draft_length: int, chooser: Chooser
    ) -> Generator[Pass, Logits, Draft]:
        """Propose up to `draft_length` tokens to follow `tokens`, asking for passes as needed."""
        ...


@dataclass(frozen=True, slots=True)
class ReadyDrafter:
    """Proposes what was found already."""

    draft: Draft

    @property
    def name(self) -> str:
        """The name of whatever found it."""
        return self.draft.drafter

    def propose(
        self,
        tokens: Sequence[int],
        draft_length: int,
        chooser: Chooser,
    ) -> Generator[Pass, Logits, Draft]:
        """Return the draft, cut to `draft_length` and to what a constraint lets follow."""
        yield from ()
        draft = self.draft
        length = chooser.admitted(tokens, draft.tokens[:draft_length])
        return Draft(draft.tokens[:length], draft.confidences[:length], draft.drafter)


class NoDrafter:
    """Proposes nothing: plain decoding is the round with an empty draft."""

    name = "off"

    def propose(
        self,
        tokens: Sequence[int],  # noqa: ARG002 - the protocol's signature
        draft_length: int,  # noqa: ARG002
        chooser: Chooser,  # noqa: ARG002
    ) -> Generator[Pass, Logits, Draft]:
        """Return an empty draft without asking for a pass."""
        yield from ()
        return Draft()
