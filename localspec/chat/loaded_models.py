"""LoadedModels: what an assistant needs of the models."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from localspec.chat.tokenizer import Tokenizer
from localspec.decoding.cancel import CancelFlag
from localspec.decoding.costs import PairCosts
from localspec.decoding.model import Role
from localspec.decoding.scheduler import Sequences, SequenceView
from localspec.errors import UsageError
from localspec.media import why_not_taken
from localspec.messages import MediaPart

if TYPE_CHECKING:
    from localspec.grammar import Grammars


class MediaEncoder(Protocol):
    """Turns pictures and sounds into tokens of a target."""

    @property
    def sees(self) -> bool:
        """Whether it takes pictures."""

    @property
    def hears(self) -> bool:
        """Whether it takes sounds."""

    def tokens(self, part: MediaPart, owner: str = "") -> list[int]:
        """Return the ids of a picture or a sound; those of what is no text are negative.

        The target can evaluate them until it has evaluated others that take more memory than the encoder keeps.

        Raises:
            UsageError: it cannot be decoded.
        """


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModels:
    """What an assistant needs of the models.

    Args:
        targets: the target's sequences, which decide every token.
        draft_models: the draft model's, as many; None without one.
        tokenizer: the target's; the draft model's means the same.
        eog: ids that end a generation.
        suppressed: ids that are never generated, as the target's file demands.
        template_source: the target's chat template; None where its file has none.
        target_name: how messages and figures call the target.
        draft_model_name: how they call the draft model.
        cancel: stops whatever pass is running.
        close: frees everything.
        grammar: makes the automata over the target's ids that replies ask for; None where none can be made.
        fim: the target's tokens for filling in the middle, see `infill_tokens`; empty where it cannot.
        media: turns pictures and sounds into tokens; None where the target reads text only.
        tool_template_source: the target's chat template for conversations with tools; None where it has one for all.
        model_for: names one that takes the other kinds of parts; None where none is known.
        costs: of passes; None where they were not measured.
        check: raises ModelChanged where a file of theirs was written over.
        longest: tokens of context that the target was trained for; 0 where that is not known.
    """

    targets: Sequences
    draft_models: Sequences | None
    tokenizer: Tokenizer
    eog: Collection[int]
    suppressed: Collection[int]
    template_source: str | None
    target_name: str
    draft_model_name: str | None
    cancel: CancelFlag
    close: Callable[[], None]
    grammar: "Grammars | None" = None
    fim: Mapping[str, int] = field(default_factory=dict)
    media: MediaEncoder | None = None
    tool_template_source: str | None = None
    model_for: Callable[[Literal["image", "audio"]], str | None] = lambda _kind: None
    costs: PairCosts | None = None
    check: Callable[[], None] = lambda: None
    longest: int = 0

    @property
    def target(self) -> SequenceView:
        """The target's first sequence."""
        return self.targets.views[0]

    @property
    def draft_model(self) -> SequenceView | None:
        """The draft model's first sequence; None without one."""
        return None if self.draft_models is None else self.draft_models.views[0]

    def checked_ids(self, ids: Sequence[int]) -> list[int]:
        """Return ids of the target's vocabulary.

        Raises:
            UsageError: one is none of it.
        """
        most = self.target.n_vocab - 1
        wrong = next((each for each in ids if not 0 <= each <= most), None)
        if wrong is not None:
            raise UsageError(
                f"token {wrong} is none of {self.target_name}: give ids from 0 to {most}"
            )
        return list(ids)

    def media_tokens(self, part: MediaPart, owner: str = "") -> list[int]:
        """Return the ids of a picture or a sound, of which each owner has its own.

        Raises:
            UsageError: the target takes no such thing, or it cannot be decoded.
        """
        media, kind = self.media, part.kind
        sees, hears = media is not None and media.sees, media is not None and media.hears
        if media is not None and (sees if kind == "image" else hears):
            return media.tokens(part, owner)
        other = self.model_for(kind)
        why_not = why_not_taken(kind, self.target_name, sees=sees, hears=hears, other=other)
        raise UsageError(why_not or f"{self.target_name} reads text only")

    def by_role(self) -> dict[Role, Sequences]:
        """Return the sequences of each model."""
        models = {Role.TARGET: self.targets}
        if self.draft_models is not None:
            models[Role.DRAFT_MODEL] = self.draft_models
        return models
