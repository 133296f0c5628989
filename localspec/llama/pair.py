"""Pair: a target and, where there is one, its draft model, loaded and ready for passes."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.decoding.cancel import CancelFlag
from localspec.decoding.tries import DRAFT_ROWS
from localspec.llama.allocator import give_back_memory
from localspec.llama.context import LlamaContext
from localspec.llama.model import LlamaModel
from localspec.options import LoadOptions


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Two contexts under one cancel flag.

    Args:
        target: decides every token.
        draft_model: proposes; None where nothing is to be drafted by a model.
        cancel: stops whatever pass of either is running.
        notes: what the user should know of how they were loaded, a sentence each.
    """

    target: LlamaContext
    draft_model: LlamaContext | None
    cancel: CancelFlag
    notes: tuple[str, ...]

    @property
    def can_draft(self) -> bool:
        """Whether a rejected draft can be removed from the target's memory."""
        return self.target.can_truncate

    def truncate_s(self) -> tuple[float, float]:
        """Return the seconds that target and draft model spent so far on removing what they had cached."""
        return (
            self.target.truncate_s,
            0.0 if self.draft_model is None else self.draft_model.truncate_s,
        )

    def close(self) -> None:
        """Free both, contexts and weights, and give their memory back to the system."""
        for context in (self.draft_model, self.target):
            if context is not None:
                context.model.close()
        give_back_memory()


def open_pair(
    target: Path,
    draft_model: Path | None,
    options: LoadOptions,
    cancel: CancelFlag,
    on_progress: Callable[[Path, float], None] | None = None,
    draft_gpu_layers: int | None = None,
) -> Pair:
    """Load the models and make their contexts.

    Args:
        target: file of the target.
        draft_model: file of the draft model, if one is wanted.
        options: of the target; the draft model shares them, with a row at a time and no more
            context than it was trained for.
        cancel: stops loading, prefill and passes.
        on_progress: called with a file and the share of it that is loaded, 0 to 1.
        draft_gpu_layers: layers of the draft model to offload; None is as in `options`.

    Raises:
        Cancelled: `cancel` was set while loading.
        ModelLoadError: llama.cpp refuses a file or a context.
    """
    main = _open(target, options, cancel, on_progress)
    notes = []
    if options.n_ctx is not None and options.n_ctx > main.model.n_ctx_train:
        notes.append(
            f"the context is {main.n_ctx} tokens, not {options.n_ctx}: the target was trained for no more"
        )
    small = None
    if not main.can_truncate:
        notes.append(
            "the target keeps a recurrent state, of which no part can be taken back: "
            "it runs without drafting"
        )
    elif draft_model is not None:
        small_options = replace(options, n_ctx=main.n_ctx, max_rows=DRAFT_ROWS)
        if draft_gpu_layers is not None:
            small_options = replace(small_options, gpu_layers=draft_gpu_layers)
        small = _open(draft_model, small_options, cancel, on_progress)
        if not small.can_truncate:
            notes.append(
                "the draft model keeps a recurrent state, of which no part can be taken back: "
                "it is not used"
            )
            small.model.close()
            small = None
    return Pair(main, small, cancel, tuple(notes))


def _open(
    path: Path,
    options: LoadOptions,
    cancel: CancelFlag,
    on_progress: Callable[[Path, float], None] | None,
) -> LlamaContext:
    report = None if on_progress is None else lambda share: on_progress(path, share)
    model = LlamaModel(path, options, cancel, report)
    if options.n_ctx is not None and options.n_ctx > model.n_ctx_train:
        options = replace(options, n_ctx=model.n_ctx_train)
    return LlamaContext(model, cancel, options)
