"""LoadPlan: what is loaded, and how. `load` obeys it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localspec.decoding.costs import PairCosts
from localspec.decoding.draft_mode import AUTO, DraftMode, draft_mode
from localspec.decoding.drafters.register import WITHOUT_MODEL
from localspec.decoding.model import Role
from localspec.errors import LocalspecError
from localspec.models.architectures import Heads
from localspec.options import LoadOptions
from localspec.plan.fit import FitPlan, PairLoad, PlaceUse

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from localspec.plan.reading import PlainCopy

TEXT_ONLY = "the target reads text only"


@dataclass(frozen=True, slots=True)
class EncoderFile:
    """The encoders of pictures and sounds of a target.

    Args:
        path: their file, `mmproj`: the one that was named, or else the target's own; None for text only.
        named: whether the user named it.
        takes: how the target could be loaded to take pictures or sounds, by the kind; empty where it could not, or is.
        size: what they take, in bytes.
        most_tokens: of a picture, as far as that is known.
        error: why the file is of no use.
        notes: why they are left out, a sentence each.
    """

    path: Path | None = None
    named: bool = False
    takes: Mapping[str, str] = field(default_factory=dict)
    size: int = 0
    most_tokens: int = 0
    error: LocalspecError | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What to load: files that are here, sound, and fit each other.

    Args:
        target: file of the target.
        draft_model: file of the draft model; None if none is used.
        names: how the user calls each file.
        modes: what the models have to be ready for; the first is the assistant's.
        shared_vocab: ids that both vocabularies have; 0 without a draft model, and where it has another vocabulary.
        options: how to load, as they fit the memory that is free.
        parallel: how many requests are answered at once; None takes what the costs of passes and the memory suggest.
        exact: whether drafting may change no bit.
        fit: refuse what the free memory does not hold.
        draft_options: how to load the draft model; None as in `options`.
        notes: what was given up for want of memory, a sentence each.
        uses: what was planned to be taken of each place; empty where that is not known.
        draft_lora: file of an adapter for the draft model; None without one.
        left_out: costs of a pair whose draft model or heads are not loaded, since they never pay.
        heads: of the target, which draft instead of a draft model; in its file, where they are not MTP layers.
        corrections: what the headers of files should say instead, by keys.
        normal: which ids the headers of files call normal, and no end.
        encoder: of pictures and sounds.
        pair: what was fitted.
        plain: the plain copy of the target that may read prompts; None without one.
    """

    target: Path
    draft_model: Path | None
    names: Mapping[Path, str]
    modes: tuple[DraftMode, ...]
    shared_vocab: int
    options: LoadOptions
    parallel: int | None = 1
    exact: bool = False
    fit: bool = True
    draft_options: LoadOptions | None = None
    notes: tuple[str, ...] = ()
    uses: tuple[PlaceUse, ...] = ()
    draft_lora: Path | None = None
    left_out: PairCosts | None = None
    heads: Heads | None = None
    corrections: Mapping[Path, Mapping[str, int]] = field(default_factory=dict)
    normal: "Mapping[Path, NDArray[np.bool_] | None]" = field(default_factory=dict, compare=False)
    encoder: EncoderFile = field(default_factory=EncoderFile)
    pair: PairLoad | None = field(default=None, compare=False)
    plain: "PlainCopy | None" = None

    def told(self, path: Path) -> dict[str, Any]:
        """Return what a model's file is loaded with beside its options, see `LlamaModel`."""
        return {"corrections": self.corrections.get(path), "normal": self.normal.get(path)}

    @property
    def drafts_by_passes(self) -> bool:
        """Whether there is a draft model, or heads."""
        return self.draft_model is not None or self.heads is not None

    @property
    def needs_passes(self) -> bool:
        """Whether a mode cannot do without a draft model, or heads."""
        return any(mode.needs_draft_model or mode.needs_heads for mode in self.modes)

    @property
    def is_adaptive(self) -> bool:
        """Whether a mode chooses in every round what drafts."""
        return any(mode.kind == AUTO for mode in self.modes)

    @property
    def needs_heads(self) -> bool:
        """Whether a mode cannot do without heads."""
        return any(mode.needs_heads for mode in self.modes)

    @property
    def longest_draft(self) -> int:
        """Most tokens of a draft that the draft model or the heads make."""
        longest = self.options.max_rows - 1
        if self.heads is not None and self.heads.count > 1:
            return min(longest, self.heads.count)
        return longest

    def undrafted(self) -> "LoadPlan":
        """Return this without its draft model, and without heads: looking up takes no memory to speak of."""
        lookup = draft_mode(WITHOUT_MODEL)
        modes = tuple(
            lookup if mode.needs_draft_model or mode.needs_heads else mode for mode in self.modes
        )
        options = replace(self.options, max_rows=max(mode.rows for mode in modes))
        return replace(
            self,
            draft_model=None,
            draft_lora=None,
            modes=modes,
            shared_vocab=0,
            options=options,
            draft_options=None,
            heads=None,
        )

    def fitted(self, pair: PairLoad, fit: FitPlan | None) -> "LoadPlan":
        """Return this less what the memory that is free does not hold; None for what is not known, or not to be looked at."""
        plan = replace(self, pair=pair)
        if fit is None:
            return plan
        options, draft_options = _placed(plan.options, fit, fit.target_layers), plan.draft_options
        if draft_options is not None:
            draft_options = _placed(draft_options, fit, fit.draft_layers or 0)
        notes = (*plan.notes, *fit.given_up)
        plan = replace(
            plan, options=options, draft_options=draft_options, notes=notes, uses=fit.uses
        )
        return plan.undrafted() if pair.drafts and fit.draft_layers is None else plan

    def name(self, role: Role) -> str:
        """Return how the user calls a model; empty if there is none."""
        file = self.target if role is Role.TARGET else self.draft_model
        return "" if file is None else self.names[file]


def _placed(wanted: LoadOptions, fit: FitPlan, layers: int) -> LoadOptions:
    """Return how a model is loaded that has so many layers on GPUs, as far as it was not said how."""
    n_ctx = fit.n_ctx if fit.shrunk else wanted.n_ctx
    is_open = wanted.gpu_layers is None and fit.gpus
    return replace(wanted, n_ctx=n_ctx, gpu_layers=layers if is_open else wanted.gpu_layers)
