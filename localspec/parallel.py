"""Parallel answering: a target with several sequences instead of one, behind the `Answerer` protocol."""

from collections.abc import Collection
from dataclasses import replace

from localspec.calibration.calibrated import calibrated, calibrated_widths
from localspec.chat.assistant import Assistant
from localspec.chat.parallel import Parallel
from localspec.decoding.cancel import CancelFlag
from localspec.decoding.crowd import Crowd, CrowdPolicy
from localspec.decoding.drafter import NoDrafter
from localspec.decoding.lookup_drafter import LookupDrafter
from localspec.decoding.policy import FixedPolicy, Policy
from localspec.decoding.side_by_side import best_count
from localspec.drafting import LONGEST_DRAFT, LOOKUP_DRAFT_LENGTH, DraftMode
from localspec.errors import ModelLoadError
from localspec.fitting import sequences_that_fit
from localspec.llama.devices import supports_offload
from localspec.llama.options import LoadOptions
from localspec.llama.sequences import LlamaSequences
from localspec.loading import Loaded, OnShare, Prepared, consecutive
from localspec.models.gguf import read_model

MOST = 64
"""Beyond it no pass was ever measured."""
_UNDRAFTED = "several at a time fill the passes that the draft model would use: it is left out"


def open_parallel(
    prepared: Prepared,
    count: int | None,
    cancel: CancelFlag | None = None,
    on_load: OnShare = lambda _name, _share: None,
    on_measure: OnShare = lambda _name, _share: None,
    *,
    fit: bool = True,
) -> Parallel:
    """Load the target, and return what answers several requests at once.

    The draft model is not loaded: beside several sequences it would need as many of its own, and where
    they fill the passes of the target, no draft pays. Copying from the text goes on as far as it pays.

    Args:
        prepared: what to load.
        count: how many requests at once; None takes what the costs of passes and the memory suggest.
        cancel: stops loading, and later every reply.
        on_load: called while the target is loaded.
        on_measure: called while its passes are measured.
        fit: refuse, or do not choose, what the free memory does not hold.

    Raises:
        Cancelled: `cancel` was set while loading.
        ModelLoadError: llama.cpp refuses the file or the context, or there is no memory for so many.
    """
    if prepared.draft_model is not None:
        mode, prepared = prepared.modes[0], prepared.undrafted()
        modes = (DraftMode("auto") if mode.kind == "model" else mode,)
        prepared = replace(prepared, modes=modes, notes=(*prepared.notes, _UNDRAFTED))
    prepared = replace(prepared, options=_for_many(prepared.options))
    loaded = prepared.open(cancel, on_load, on_measure)
    try:
        return _opened(prepared, loaded, count, on_measure, fit=fit)
    except BaseException:
        loaded.assistant.close()
        raise


def _opened(
    prepared: Prepared, loaded: Loaded, wanted: int | None, on_measure: OnShare, *, fit: bool
) -> Parallel:
    context, models = loaded.target, loaded.assistant.models
    model, name = context.model, models.target_name
    costs = calibrated(
        model, None, models.cancel, lambda _role, share: on_measure(name, share)
    ).target
    most_rows = MOST
    if prepared.exact:
        safe = calibrated_widths(model, models.cancel, lambda share: on_measure(name, share))
        most_rows = consecutive(safe.widths)
    context.close()  # its cache makes room for theirs
    options = replace(prepared.options, n_ctx=context.n_ctx, max_rows=1)
    holds = _holds(prepared, options) if fit else MOST
    if wanted is not None and wanted > holds:
        raise ModelLoadError(
            f"{wanted} sequences of {context.n_ctx} tokens do not fit into the free memory, "
            f"{holds} would: give a smaller --parallel or --ctx"
        )
    count = wanted or best_count(costs, max(1, min(holds, most_rows)))
    sequences = LlamaSequences(
        model, models.cancel, options, count, max(most_rows, 1), sharing=not prepared.exact
    )
    longest = sequences.most_rows - 1 if sequences.can_truncate else 0
    crowd = Crowd(costs)
    policies = [
        _policy(prepared.modes[0], crowd, place, models.eog, longest) for place in range(count)
    ]
    assistants = [
        Assistant(replace(models, target=view, draft_model=None), policy)
        for view, policy in zip(sequences.views, policies, strict=True)
    ]
    said = (
        f"{count} lines at a time" if count > 1 else "one line at a time: more would gain nothing"
    )
    return Parallel(
        assistants,
        sequences,
        afresh=prepared.exact,
        on_end=crowd.leave,
        notes=(*loaded.assistant.notes, said),
    )


def _for_many(options: LoadOptions) -> LoadOptions:
    """Return the options with the attention that suits many short sequences.

    On a CPU, flash attention takes a tenth to a fifth less of a pass of 16 sequences; alone, in a deep
    context, it takes more.
    """
    on_gpu = options.gpu_layers != 0 and supports_offload()
    if on_gpu or options.attention(on_gpu=False) is not False or options.flash_attention is False:
        return options
    return replace(options, flash_attention=True)


def _holds(prepared: Prepared, options: LoadOptions) -> int:
    holds = sequences_that_fit(read_model(prepared.target), options)
    return MOST if holds is None else min(holds, MOST)


def _policy(
    mode: DraftMode, crowd: Crowd, place: int, eog: Collection[int], longest: int
) -> Policy:
    """Return how one of several sequences drafts; a draft model is replaced by what the text offers."""
    if mode.kind == "off" or longest == 0:
        return FixedPolicy(NoDrafter(), 0)
    if mode.kind == "lookup":
        return FixedPolicy(
            LookupDrafter(eog), min(mode.draft_length or LOOKUP_DRAFT_LENGTH, longest)
        )
    return CrowdPolicy(crowd, place, eog, min(LONGEST_DRAFT, longest))
