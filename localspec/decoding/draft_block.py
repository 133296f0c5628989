"""DraftBlock: tokens that one pass of heads drafts."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DraftBlock:
    """Tokens that one pass drafts: the latest token of the text, and behind it masks, whose rows say what comes there.

    Args:
        size: tokens of the pass.
        mask: id of a mask.
        skipped: rows before the first that drafts: 1 where the row of the latest token itself is none.
        top_k: candidates of a place, of which a selector scores each by the one chosen before it; 0 without one.
        causal: whether a place sees none behind it.
    """

    size: int
    mask: int
    skipped: int = 1
    top_k: int = 0
    causal: bool = False

    @property
    def drafted(self) -> int:
        """Most tokens that a pass drafts."""
        return self.size - self.skipped
