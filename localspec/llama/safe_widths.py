"""SafeWidths: how wide a pass may be and still give, bit for bit, what single tokens give.

Whether it does depends on kernels, so it is measured and not known: by files, options and machine.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from localspec.decoding.cancel import CancelFlag
from localspec.decoding.model import LanguageModel, Logits
from localspec.llama.context import LlamaContext
from localspec.llama.model import LlamaModel
from localspec.llama.options import LoadOptions

WIDEST = 16
# ggml looks at the cache in blocks of 256 cells, and cuts it into ranges beyond the first. So: in
# the first block, from the first into the second, in the second, into the third, and deep.
DEPTHS = (120, 255, 300, 511, 1000)
_AFTER = 2  # single tokens after a wide pass, which see the keys and values that it wrote
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
            logit from what passes of one token give.
    """

    widths: tuple[int, ...]
    differences: Mapping[int, float]


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
    reach = WIDEST + _AFTER
    n_ctx = min(max(depths) + reach, model.n_ctx_train)
    context = LlamaContext(model, cancel, replace(options, n_ctx=n_ctx, max_rows=WIDEST))
    try:
        tokens = _tokens(model, n_ctx)
        fitting = [depth for depth in depths if depth + reach <= n_ctx]
        unsafe: dict[int, float] = {}
        for done, depth in enumerate(fitting):
            for width, difference in differences_at(context, tokens, depth).items():
                unsafe[width] = max(difference, unsafe.get(width, 0.0))
            on_progress((done + 1) / len(fitting))
    finally:
        context.close()
    safe = tuple(w for w in range(1, WIDEST + 1) if w not in unsafe)
    return SafeWidths(safe if fitting and context.can_truncate else (1,), unsafe)


def differences_at(
    model: LanguageModel, tokens: Sequence[int], depth: int, widest: int = WIDEST
) -> dict[int, float]:
    """Return by how much passes differ from single tokens after `depth` tokens, where they do.

    What a wide pass leaves in the cache counts, too: the tokens after it are evaluated one by one,
    and their rows have to be the same.

    Args:
        model: evaluates; what it has cached before does not matter.
        tokens: at least `depth + widest + 2`.
        depth: tokens before the pass.
        widest: the widest pass to try.

    Returns:
        By width, the largest absolute difference; a width whose rows are equal bit for bit is not
        in it.
    """
    model.truncate(0)  # what earlier comparisons evaluated was cut into other chunks
    model.prefill(tokens[:depth])
    alone = _single_rows(model, tokens, depth, widest + _AFTER)
    found: dict[int, float] = {}
    for width in range(2, widest + 1):
        model.truncate(depth)
        rows = [*model.logits(tokens[: depth + width], rows=width).copy()]
        rows += _single_rows(model, tokens, depth + width, _AFTER)
        gaps = [_gap(row, single) for row, single in zip(rows, alone, strict=False)]
        changed = [gap for gap in gaps if gap is not None]
        if changed:
            found[width] = max(changed)
    return found


def _single_rows(
    model: LanguageModel, tokens: Sequence[int], depth: int, count: int
) -> list[Logits]:
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
