"""SafeWidths: how wide a pass may be and still give, bit for bit, what single tokens give.

Whether it does depends on kernels, so it is measured and not known: by files, options and machine. On a GPU mostly none does;
there, a token may still have the same bits wherever it stands in passes of one width.
"""

import mmap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from localspec.decoding.cancel import CancelFlag
from localspec.decoding.model import Logits
from localspec.errors import PassFailed
from localspec.llama.model import LlamaModel
from localspec.llama.native import native
from localspec.llama.sequence import LlamaContext
from localspec.options import LoadOptions

WIDEST = 16
ACROSS = (252, 508, 764)
"""From here, a padded pass ends where a block of the cache does, and its tokens alone, padded, reach into the next one."""
FIXED_WIDTH = 4
"""Tokens of every pass where no other width is exact. On an H100 a model of a 7B's shape then takes 1.26 times as long for a
plain token; passes of eight cost 1.4 times what passes of four do."""
# ggml looks at the cache in blocks of 256, and may cut it into ranges beyond the first. So passes are
# tried inside of blocks and across their boundaries.
DEPTHS = (120, 255, 300, 511, 767)
_TEXT = (
    "def mean(values: list[float]) -> float:\n    return sum(values) / len(values)\n\n"
    "The ferry left at 7:45, twelve minutes late, with 63 people on board. Nobody minded: the sea "
    "was calm, the coffee was hot, and in the north the sky was slowly turning from grey to gold.\n"
)


@dataclass(frozen=True, slots=True)
class SafeWidths:
    """Which widths of a pass change no bit, and how much the others change.

    Args:
        widths: the safe ones, ascending; 1 is always among them.
        differences: of every other width that was tried, the largest absolute difference of a
            logit from what passes of one token give, or of the last hidden row where only that differs.
        fixed: of how many tokens every pass may be so that each token has the same bits wherever it stands; 0 where that
            is not so, or not needed.
    """

    widths: tuple[int, ...]
    differences: Mapping[int, float]
    fixed: int = 0

    def __post_init__(self) -> None:
        if self.widths[:1] != (1,) or set(self.widths) & set(self.differences):
            raise ValueError(f"safe widths {self.widths}: from 1 on, without those that differ")


def safe_widths(
    model: LlamaModel,
    options: LoadOptions,
    cancel: CancelFlag | None = None,
    on_progress: Callable[[float], None] = lambda _share: None,
    depths: Sequence[int] = DEPTHS,
) -> SafeWidths:
    """Compare passes of 2 to 16 tokens with passes of one, beside whatever contexts a model has.

    Args:
        model: the weights, loaded as they will be used.
        options: how the context is made whose passes are meant; its size does not matter here.
        cancel: stops it.
        on_progress: called with the share that is done, 0 to 1.
        depths: tokens in the cache before the passes, ascending; what the model was not trained
            for is left out.

    Raises:
        Cancelled: the flag was set.
        ModelLoadError: there is no memory for one more, small context.
    """
    n_ctx = min(max(depths) + WIDEST + 1, model.n_ctx_train)
    options = replace(options, n_ctx=n_ctx)
    context = LlamaContext(model, cancel, replace(options, max_rows=WIDEST))
    alone: LlamaContext | None = None
    try:
        if context.native.most_removed == 0:
            return SafeWidths((1,), {})
        tokens, depths = _tokens(model, n_ctx), [d for d in depths if d + WIDEST < n_ctx]
        if context.native.can_truncate:
            exact = _compared(context, tokens, depths, on_progress)
            if model.on_gpu and 2 not in exact.widths:
                context.native.fix_width(FIXED_WIDTH)
                across = sorted({*depths, *(d for d in ACROSS if d < max(depths, default=0))})
                padded = _compared(context, tokens, across, on_progress, FIXED_WIDTH)
                fixed = FIXED_WIDTH if len(padded.widths) == FIXED_WIDTH else 0
                exact = replace(exact, fixed=fixed)
            return exact
        alone = LlamaContext(model, cancel, replace(options, max_rows=1))
        widest, rewound = min(WIDEST, context.native.most_removed + 1), Rewound(context, alone)
        by_logits = _compared(rewound, tokens, depths, lambda share: on_progress(share / 2), widest)
        rewound.hidden = True
        by_hidden = _compared(
            rewound, tokens, depths[:2], lambda share: on_progress(0.5 + share / 2), widest
        )
        return SafeWidths(
            tuple(sorted({*by_logits.widths} & {*by_hidden.widths})),
            {**by_hidden.differences, **by_logits.differences},
        )
    finally:
        context.close()
        if alone is not None:
            alone.close()


class Compared(Protocol):
    """What is asked of a model whose passes are compared; see `LanguageModel`."""

    def prefill(self, tokens: Sequence[int]) -> int:
        """Evaluate `tokens` ahead."""

    def logits(self, tokens: Sequence[int], rows: int) -> Logits:
        """Return the logits after the last `rows` tokens."""

    def truncate(self, n_past: int) -> None:
        """Forget everything beyond the first `n_past` tokens."""


class Rewound:
    """A recurrent model as it is compared: before the first truncation by single tokens, then by wide passes.

    Single tokens are evaluated where no snapshots are kept, as without drafting. Of a wide pass, all of its snapshots
    count: the row of a token is the one that is given after the pass was rolled back to it, if that is another.

    Args:
        wide: keeps snapshots.
        alone: keeps none.

    Attributes:
        hidden: whether rows are the last hidden ones, instead of logits. Kernels of convolutions round otherwise by the last
            bit, which the quantisation of what goes into a matrix mostly hides, until one day it does not.
    """

    def __init__(self, wide: LlamaContext, alone: LlamaContext) -> None:
        self._wide, self._alone = wide, alone
        self.hidden = False
        self._before: tuple[list[int], mmap.mmap] | None = None
        self._truncated = False

    def prefill(self, tokens: Sequence[int]) -> int:
        """Evaluate the same in both."""
        self._truncated = False
        self._wide.forget()
        self._wide.prefill(tokens)
        self._before = (list(tokens), self._wide.native.copied(self._wide.number))
        return self._alone.prefill(tokens)

    def truncate(self, n_past: int) -> None:
        """Go back to what was evaluated ahead."""
        assert self._before is not None, "it was evaluated ahead"  # noqa: S101
        (tokens, copy), wide = self._before, self._wide
        assert n_past == len(tokens), "there is no other way back"  # noqa: S101
        self._truncated = True
        if not (wide.native.put_back(wide.number, copy) and wide.assume(tokens)):
            raise PassFailed("llama.cpp does not take back a recurrent state that it gave")

    def logits(self, tokens: Sequence[int], rows: int) -> Logits:
        """Return rows; see `LanguageModel`."""
        given = _hidden if self.hidden else _logits
        if not self._truncated:
            return given(self._alone, tokens, rows)
        given_rows = given(self._wide, tokens, rows).copy()
        for removed in range(1, rows):
            self.truncate(len(tokens) - rows)
            self._wide.logits(tokens, rows)
            again = given(self._wide, tokens[: len(tokens) - removed + 1], 1)[0]
            if _gap(again, given_rows[rows - removed]) is not None:
                given_rows[rows - removed] = again
        if rows > 1:
            self.truncate(len(tokens) - rows)
            self._wide.logits(tokens, rows)
        return given_rows


def _logits(context: LlamaContext, tokens: Sequence[int], rows: int) -> Logits:
    return context.logits(tokens, rows)


def _hidden(context: LlamaContext, tokens: Sequence[int], rows: int) -> Logits:
    """Return the last hidden rows of a pass over `rows` tokens, which the head would take."""
    width = int(native.llama_model_n_embd_out(context.model.handle))
    native.llama_set_embeddings(context.native.handle, True)
    try:
        context.logits(tokens, rows)
        rows_of = [
            native.llama_get_embeddings_ith(context.native.handle, row) for row in range(rows)
        ]
        return np.stack([np.ctypeslib.as_array(row, shape=(width,)) for row in rows_of])
    finally:
        native.llama_set_embeddings(context.native.handle, False)


def _compared(
    model: Compared,
    tokens: Sequence[int],
    depths: Sequence[int],
    on_progress: Callable[[float], None],
    widest: int = WIDEST,
) -> SafeWidths:
    """Compare at several depths; a width that is unsafe at one is not tried again."""
    unsafe: dict[int, float] = {}
    tried, done = list(range(2, widest + 1)), 0
    left = len(tried) * len(depths)

    def count() -> None:
        nonlocal done, left
        done, left = done + 1, left - 1
        on_progress(done / (done + left))

    on_progress(0.0)
    for after, depth in zip(reversed(range(len(depths))), depths, strict=True):
        unsafe |= differences_at(model, tokens, depth, tried, count)
        tried = [width for width in tried if width not in unsafe]
        left = len(tried) * after
        if not tried:
            break
    on_progress(1.0)
    if not depths:
        return SafeWidths((1,), {})
    safe = tuple(width for width in range(1, widest + 1) if width not in unsafe)
    return SafeWidths(safe, dict(sorted(unsafe.items())))


def differences_at(
    model: Compared,
    tokens: Sequence[int],
    depth: int,
    widths: Sequence[int],
    on_width: Callable[[], None] = lambda: None,
) -> dict[int, float]:
    """Return by how much passes differ from single tokens after `depth` tokens, where they do.

    What a wide pass leaves in the cache counts, too: the token after it is evaluated alone, and
    its row has to be the same. What is cached of the first `depth` tokens stays as it is, however it was
    computed, for every pass alike.

    Args:
        model: evaluates.
        tokens: at least `depth + max(widths) + 1`.
        depth: tokens before the pass.
        widths: of the passes to try.
        on_width: called after each.

    Returns:
        By width, the largest absolute difference; a width whose rows are equal bit for bit is not
        in it.
    """
    model.prefill(tokens[:depth])
    alone = _single_rows(model, tokens, depth, max(widths, default=0) + 1)
    differences: dict[int, float] = {}
    for width in widths:
        model.truncate(depth)
        rows = [*model.logits(tokens[: depth + width], rows=width).copy()]
        rows += _single_rows(model, tokens, depth + width, 1)
        gaps = [_gap(row, single) for row, single in zip(rows, alone, strict=False)]
        changed = [gap for gap in gaps if gap is not None]
        if changed:
            differences[width] = max(changed)
        on_width()
    return differences


def _single_rows(model: Compared, tokens: Sequence[int], depth: int, count: int) -> list[Logits]:
    """Return the rows of `count` passes of one token each, from `depth` on."""
    ends = range(depth + 1, depth + count + 1)
    return [model.logits(tokens[:end], rows=1)[0].copy() for end in ends]


def _gap(row: Logits, other: Logits) -> float | None:
    """Return the largest difference between two rows; None if every bit is the same."""
    changed = row.view(np.uint32) != other.view(np.uint32)
    if not changed.any():
        return None
    gap = float(np.abs(row[changed].astype(np.float64) - other[changed]).max())
    return float("inf") if np.isnan(gap) else gap


def _tokens(model: LlamaModel, count: int) -> list[int]:
    text = model.vocabulary.tokenize(_TEXT, add_special=False, parse_special=False)
    return (text * (count // max(1, len(text)) + 1))[:count]
