"""Drafter: whatever proposes the next tokens. Draft: one proposal."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Protocol

from localspec.decoding.choose import Chooser
from localspec.decoding.model import Logits, Pass


@dataclass(frozen=True, slots=True)
class Draft:
    """Proposed tokens, how sure the drafter was of each (0 to 1), and which drafter it was."""

    tokens: tuple[int, ...] = ()
    confidences: tuple[float, ...] = ()
    drafter: str = "off"


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
