"""Loading: prepared files become a pair, the pair an Assistant, and modes its policies."""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from localspec.calibration.calibrated import cached_costs, calibrated, calibrated_widths
from localspec.chat.assistant import Assistant
from localspec.chat.loaded_models import LoadedModels
from localspec.decoding.cancel import CancelFlag
from localspec.decoding.model import Role
from localspec.drafting import LOOKUP_DRAFT_LENGTH, Drafting, DraftMode, PairCosts, windowed
from localspec.llama.context import LlamaContext
from localspec.llama.grammar import Grammars
from localspec.llama.pair import Pair, open_pair
from localspec.options import LoadOptions


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a pair.

    Args:
        target: of the target.
        draft_model: of the draft model, if one is used.
        names: how the user calls each.
    """

    target: Path
    draft_model: Path | None
    names: Mapping[Path, str]


OnShare = Callable[[str, float], None]
"""Is told a model's name, and the share that is done of what happens with it, 0 to 1."""


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A pair that is loaded.

    Args:
        assistant: answers with it.
        drafting: what it can draft with.
        target: the target's context.
    """

    assistant: Assistant
    drafting: Drafting
    target: LlamaContext


@dataclass(frozen=True, slots=True)
class Prepared:
    """Files that are here, sound, and fit each other; nothing is loaded yet.

    Args:
        files: what to load.
        modes: what the pair has to be ready for; the first is the assistant's.
        shared_vocab: ids that both vocabularies have; 0 without a draft model.
        options: how to load, as they fit the memory that is free.
        exact: whether drafting may change no bit.
        draft_gpu_layers: layers of the draft model on a GPU; None as in `options`.
        notes: what was given up for want of memory, a sentence each.
        left_out: costs of a pair whose draft model is not loaded, since it never pays.
    """

    files: Files
    modes: tuple[DraftMode, ...]
    shared_vocab: int
    options: LoadOptions
    exact: bool = False
    draft_gpu_layers: int | None = None
    notes: tuple[str, ...] = ()
    left_out: PairCosts | None = None

    def undrafted(self) -> "Prepared":
        """Return this without its draft model: looking up takes no memory to speak of."""
        lookup = DraftMode("lookup", LOOKUP_DRAFT_LENGTH)
        modes = tuple(lookup if mode.kind == "model" else mode for mode in self.modes)
        options = replace(self.options, max_rows=max(mode.rows for mode in modes))
        files = replace(self.files, draft_model=None)
        return replace(self, files=files, modes=modes, shared_vocab=0, options=options)

    @property
    def target(self) -> Path:
        """The target's file."""
        return self.files.target

    @property
    def draft_model(self) -> Path | None:
        """The draft model's file, if one is used."""
        return self.files.draft_model

    def load(
        self,
        cancel: CancelFlag | None = None,
        on_load: OnShare = lambda _name, _share: None,
        on_measure: OnShare = lambda _name, _share: None,
    ) -> Assistant:
        """Load the models; see `open`."""
        return self.open(cancel, on_load, on_measure).assistant

    def open(
        self,
        cancel: CancelFlag | None = None,
        on_load: OnShare = lambda _name, _share: None,
        on_measure: OnShare = lambda _name, _share: None,
    ) -> Loaded:
        """Load the models, and measure what their passes cost where that is not known.

        Args:
            cancel: stops loading, and later every reply.
            on_load: called while a model is loaded.
            on_measure: called while its passes are measured.

        Raises:
            Cancelled: `cancel` was set while loading.
            ModelLoadError: llama.cpp refuses a file or a context.
        """
        files, names = self.files, self.files.names
        start = time.perf_counter()
        pair = open_pair(
            files.target,
            files.draft_model,
            self.options,
            CancelFlag() if cancel is None else cancel,
            lambda path, share: on_load(names[path], share),
            self.draft_gpu_layers,
        )
        try:
            drafting, notes = self._drafting(pair, on_measure)
        except BaseException:
            pair.close()
            raise
        assistant = Assistant(
            self._models(pair, drafting),
            drafting.policy(self.modes[0]),
            notes=(*self.notes, *pair.notes, *notes),
            load_s=time.perf_counter() - start,
        )
        return Loaded(assistant, drafting, pair.target)

    def _drafting(self, pair: Pair, on_measure: OnShare) -> tuple[Drafting, tuple[str, ...]]:
        """Return what the pair can draft with, and what the user should know of it."""
        target, draft_model = pair.target.model, pair.draft_model
        longest = self.options.max_rows - 1 if pair.can_draft else 0
        costs: PairCosts | None = None
        notes: tuple[str, ...] = ()
        if any(mode.kind == "auto" for mode in self.modes) and longest:
            found = calibrated(
                target,
                None if draft_model is None else draft_model.model,
                pair.cancel,
                lambda role, share: on_measure(self._name(role), share),
            )
            costs, notes = PairCosts(found.target, found.draft_model), found.notes
        if self.exact and longest:
            safe = calibrated_widths(
                target, pair.cancel, lambda share: on_measure(self._name(Role.TARGET), share)
            )
            longest = min(longest, consecutive(safe.widths) - 1)
            notes = (*notes, self._price(longest))
        seen = None
        if draft_model is not None:
            seen = windowed(draft_model, pair.target.n_ctx, costs)
        eog = target.vocabulary.eog
        rows = 1 if draft_model is None else draft_model.max_rows
        return Drafting(pair.target, seen, self.shared_vocab, eog, costs, longest, rows), notes

    def _price(self, longest: int) -> str:
        """Say what `--exact` costs, as far as it was ever measured."""
        usual = LoadOptions()
        default = replace(
            self.options,
            repack=usual.repack,
            flash_attention=usual.flash_attention,
            kv_type=usual.kv_type,
        )
        exact_costs = cached_costs(self.target, self.options, Role.TARGET)
        usual_costs = cached_costs(self.target, default, Role.TARGET)
        said = f"exact: drafts of up to {longest} tokens"
        if exact_costs is None:
            return said
        said = f"{said}; a plain token takes {1000 * exact_costs.of(1):.1f} ms"
        if usual_costs is None:
            return f"{said}, and less without --exact: how much is known after a run without it"
        return f"{said}, and {1000 * usual_costs.of(1):.1f} ms without --exact"

    def _models(self, pair: Pair, drafting: Drafting) -> LoadedModels:
        vocabulary = pair.target.model.vocabulary
        drafts = drafting.draft_model is not None
        return LoadedModels(
            target=pair.target,
            draft_model=drafting.draft_model,
            tokenizer=vocabulary,
            eog=vocabulary.eog,
            suppressed=vocabulary.suppressed(),
            template_source=pair.target.model.chat_template,
            target_name=self._name(Role.TARGET),
            draft_model_name=self._name(Role.DRAFT_MODEL) if drafts else None,
            cancel=pair.cancel,
            close=pair.close,
            truncate_s=pair.truncate_s,
            grammar=Grammars(pair.target.model),
        )

    def _name(self, role: Role) -> str:
        file = self.files.target if role is Role.TARGET else self.files.draft_model
        return "" if file is None else self.files.names[file]


def consecutive(widths: Collection[int]) -> int:
    """Return the last of the widths 1, 2, 3, … up to which none is missing.

    A draft may always turn out shorter than planned, so a width beyond a gap is of no use.
    """
    return next(width for width in count(1) if width + 1 not in widths)
