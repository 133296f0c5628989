"""Drafting: the policies that a loaded pair can run with, by the names that users give them."""

from collections.abc import Collection
from dataclasses import dataclass

from localspec.decoding.adaptive import adaptive_policy
from localspec.decoding.break_even import could_win, window_length
from localspec.decoding.costs import PassCosts
from localspec.decoding.drafter import NoDrafter
from localspec.decoding.lookup_drafter import LookupDrafter
from localspec.decoding.model import LanguageModel
from localspec.decoding.model_drafter import ModelDrafter
from localspec.decoding.policy import FixedPolicy, Policy
from localspec.decoding.windowed_model import WindowedModel
from localspec.errors import UsageError
from localspec.options import LaunchOptions

MODEL_DRAFT_LENGTH = 3
LOOKUP_DRAFT_LENGTH = 15
LONGEST_DRAFT = 31
"""Of `auto`: wider passes gain next to nothing, and their logits take memory."""


@dataclass(frozen=True, slots=True)
class DraftMode:
    """What is to draft, and how far.

    Args:
        kind: `off`, `lookup`, `model`, or `auto`, which chooses anew every round.
        draft_length: tokens to draft a round, from 1; of `off` and `auto` it is None.
    """

    kind: str
    draft_length: int | None = None

    @property
    def rows(self) -> int:
        """Rows of logits that a pass of the target may ask for."""
        return 1 + {"off": 0, "auto": LONGEST_DRAFT}.get(self.kind, self.draft_length or 0)

    @property
    def name(self) -> str:
        """As users write it."""
        return self.kind if self.draft_length is None else f"{self.kind}:{self.draft_length}"


def draft_mode(text: str, draft_length: int | None = None) -> DraftMode:
    """Return the mode that `off`, `auto`, `lookup`, `lookup:8`, `model` or `model:3` stands for.

    Args:
        text: kind, and the draft length after a colon.
        draft_length: what a mode without a length of its own takes; None takes the usual one.

    Raises:
        UsageError: there is no such mode, or it takes no such length.
    """
    kind, colon, length = text.partition(":")
    usual = {"lookup": LOOKUP_DRAFT_LENGTH, "model": MODEL_DRAFT_LENGTH}
    if kind in {"off", "auto"} and not colon:
        return DraftMode(kind)
    if kind not in usual or (colon and not length.isdecimal()):
        raise UsageError(
            f"draft mode {text!r}: choose off, auto, lookup or model, the last two with a "
            "length if you like, as in model:3"
        )
    drafted = int(length) if colon else draft_length or usual[kind]
    LaunchOptions(draft_length=drafted)  # which says what lengths there are
    return DraftMode(kind, drafted)


def draft_modes(options: LaunchOptions) -> tuple[DraftMode, ...]:
    """Return every mode that a pair has to be ready for, the wanted one first.

    Raises:
        UsageError: there is no such mode.
    """
    modes = (options.draft, *options.further)
    return tuple(draft_mode(each, options.draft_length) for each in modes)


@dataclass(frozen=True, slots=True)
class PairCosts:
    """What passes of a pair cost, and what follows from it.

    Args:
        target: passes of the target.
        draft_model: passes of the draft model; None without one.
    """

    target: PassCosts
    draft_model: PassCosts | None

    def draft_model_could_win(self, longest: int) -> bool:
        """Say whether drafts of up to `longest` tokens by the draft model could ever pay."""
        return self.draft_model is not None and could_win(self.target, self.draft_model, longest)


@dataclass(frozen=True, slots=True, eq=False)
class Drafting:
    """What a loaded pair can draft with.

    Args:
        target: the target.
        draft_model: the draft model, as policies are to see it; None without one.
        shared_vocab: ids that both vocabularies have; 0 without a draft model.
        eog: ids that end a generation.
        costs: what passes cost; None where they were not measured, and `auto` looks up.
        longest: most tokens of any draft.
        draft_rows: most rows of logits of a pass of the draft model.
    """

    target: LanguageModel
    draft_model: LanguageModel | None
    shared_vocab: int
    eog: Collection[int]
    costs: PairCosts | None
    longest: int
    draft_rows: int = 1

    def policy(self, mode: str | DraftMode) -> Policy:
        """Return a policy without memories.

        Args:
            mode: see `draft_mode`.

        Raises:
            UsageError: there is no such mode, or no draft model for it.
        """
        mode = draft_mode(mode) if isinstance(mode, str) else mode
        drafter = None
        if self.draft_model is not None:
            # A window may begin with half of what a small context holds.
            rows = max(1, min(self.draft_rows, self.draft_model.n_ctx // 2))
            drafter = ModelDrafter(
                self.draft_model.n_ctx, self.shared_vocab, self.eog, most_rows=rows
            )
        length = min(mode.draft_length or LOOKUP_DRAFT_LENGTH, self.longest)
        if mode.kind == "off" or self.longest == 0:
            return FixedPolicy(NoDrafter(), 0)
        if mode.kind == "model":
            if drafter is None:
                raise UsageError(f"draft mode {mode.name!r} needs a draft model: none is loaded")
            return FixedPolicy(drafter, length, uses_draft_model=True)
        if mode.kind == "lookup" or self.costs is None:
            return FixedPolicy(LookupDrafter(self.eog), length)
        costs = self.costs
        longest = min(self.longest, LONGEST_DRAFT)
        return adaptive_policy(costs.target, self.eog, longest, drafter, costs.draft_model)


def windowed(draft_model: LanguageModel, n_ctx: int, costs: PairCosts | None) -> WindowedModel:
    """Return the draft model as policies see it: over texts of `n_ctx` tokens, in a window."""
    fresh = draft_model.n_ctx
    if costs is not None and costs.draft_model is not None:
        fresh = window_length(costs.target, costs.draft_model, fresh)
    return WindowedModel(draft_model, n_ctx, fresh)
