"""DraftMode: what is to draft, and how far, by the names that users give."""

from dataclasses import dataclass

from localspec.decoding.drafters.register import drafters, uses_draft_model
from localspec.decoding.policy import LONGEST_DRAFT
from localspec.decoding.round import OFF
from localspec.errors import UsageError
from localspec.options import LaunchOptions

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class DraftMode:
    """What is to draft, and how far.

    Args:
        kind: `off`, `auto`, which chooses in every round, or the name of a drafter.
        draft_length: tokens to draft a round, from 1; of `off` and `auto` it is None.
    """

    kind: str
    draft_length: int | None = None

    @property
    def rows(self) -> int:
        """Rows of logits that a pass of the target may ask for."""
        return 1 + {OFF: 0, AUTO: LONGEST_DRAFT}.get(self.kind, self.draft_length or 0)

    @property
    def name(self) -> str:
        """As users write it."""
        return self.kind if self.draft_length is None else f"{self.kind}:{self.draft_length}"

    @property
    def needs_draft_model(self) -> bool:
        """Whether it cannot do without a draft model."""
        return uses_draft_model(self.kind)

    @property
    def needs_heads(self) -> bool:
        """Whether it cannot do without heads of the target."""
        return self.kind in drafters() and drafters()[self.kind].needs_heads

    @property
    def may_use_draft_model(self) -> bool:
        """Whether a draft model, or a file of heads, is of use to it."""
        return self.kind == AUTO or self.needs_draft_model or self.needs_heads


def draft_mode(text: str, draft_length: int | None = None) -> DraftMode:
    """Return the mode that `off`, `auto`, `lookup`, `lookup:8`, `model` or `model:3` stands for.

    Args:
        text: kind, and the draft length after a colon.
        draft_length: what a mode without a length of its own takes; None takes the usual one.

    Raises:
        UsageError: there is no such mode, or it takes no such length.
    """
    kind, colon, length = text.partition(":")
    if kind in {OFF, AUTO} and not colon:
        return DraftMode(kind)
    if kind not in drafters() or (colon and not length.isdecimal()):
        *others, last = drafters()
        raise UsageError(
            f"draft mode {text!r}: choose {', '.join([OFF, AUTO, *others])} or {last}; "
            "a drafter may have a length, as in model:3"
        )
    drafted = int(length) if colon else draft_length or drafters()[kind].usual_length
    LaunchOptions(draft_length=drafted)  # which says what lengths there are
    return DraftMode(kind, drafted)


def draft_modes(options: LaunchOptions) -> tuple[DraftMode, ...]:
    """Return every mode that a pair has to be ready for, the wanted one first.

    Raises:
        UsageError: there is no such mode.
    """
    return tuple(
        draft_mode(each, options.draft_length) for each in (options.draft, *options.further)
    )
