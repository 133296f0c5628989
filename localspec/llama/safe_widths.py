"""SafeWidths: how wide a pass may be and still give, bit for bit, what single tokens give.

Whether it does depends on kernels, so it is measured and not known: by files, options and machine. Logits alone do not tell:
what differs inside (a router in F32) is mostly rounded away before the next matrix, until it chooses another expert. So on a
CPU all nodes of the graph are compared, elsewhere the last hidden row, too. Where no width but 1 gives the bits of single
tokens, passes may still be equal among each other from some width on, or if all have one width.
"""

import math
import mmap
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count
from typing import Protocol

import numpy as np

from localspec.decoding.cancel import CancelFlag
from localspec.decoding.model import Logits
from localspec.errors import PassFailed
from localspec.llama.model import LlamaModel
from localspec.llama.native import native
from localspec.llama.sequence import LlamaContext
from localspec.llama.traced import TracedContext
from localspec.options import LoadOptions

WIDEST = 16
FIXED_WIDTH = 4
"""Tokens of every pass on a GPU where no other width is exact. On an H100 a model of a 7B's shape then takes 1.26 times as long
for a plain token; passes of eight cost 1.4 times what passes of four do."""
LEAST_WIDTHS = (2, FIXED_WIDTH)
"""Tokens that passes on a CPU may have at least: its kernels for several columns add up alike, however many these are."""
MOST_PRICE = 1.3
"""How many times as long a plain token may take for the sake of drafts. On an H100, answers drafted at 1.26 took as long as plain
ones of single tokens do."""
_BLOCK = 256
_TIMED = 8
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
            logit from what passes of one token give; 0 where only what is inside differs.
        fixed: how many tokens every pass has at least, with meaningless ones behind its own, so that each token has the same
            bits wherever it stands; 0 where that is not needed, not so, or too dear.
        most: how many tokens such a pass may have.
        price: how many times as long as a pass of one token one of so many takes; 0 where that did not matter.
    """

    widths: tuple[int, ...]
    differences: Mapping[int, float]
    fixed: int = 0
    most: int = 0
    price: float = 0.0

    def __post_init__(self) -> None:
        if self.widths[:1] != (1,) or set(self.widths) & set(self.differences):
            raise ValueError(f"safe widths {self.widths}: from 1 on, without those that differ")
        if not 0 <= self.fixed <= self.most:
            raise ValueError(f"passes of {self.fixed} to {self.most} tokens")

    @property
    def longest(self) -> int:
        """The widest pass up to which every width is exact: a draft may always turn out shorter than planned."""
        return self.most if self.fixed else consecutive(self.widths)


def consecutive(widths: Collection[int]) -> int:
    """Return the last of the widths 1, 2, 3, … up to which none is missing."""
    return next(width for width in count(1) if width + 1 not in widths)


def safe_widths(
    model: LlamaModel,
    options: LoadOptions,
    cancel: CancelFlag | None = None,
    on_progress: Callable[[float], None] = lambda _share: None,
    depths: Sequence[int] = DEPTHS,
    most_price: float = MOST_PRICE,
) -> SafeWidths:
    """Compare passes of 2 to 16 tokens with passes of one, beside whatever contexts a model has.

    Args:
        model: the weights, loaded as they will be used.
        options: how the context is made whose passes are meant; its size does not matter here.
        cancel: stops it.
        on_progress: called with the share that is done, 0 to 1.
        depths: tokens in the cache before the passes, ascending; what the model was not trained
            for is left out.
        most_price: how many times as long a plain token may take so that there are drafts.

    Raises:
        Cancelled: the flag was set.
        ModelLoadError: there is no memory for one more, small context.
    """
    n_ctx = min(max(depths) + WIDEST + FIXED_WIDTH + 1, model.n_ctx_train)
    options = replace(options, n_ctx=n_ctx, max_rows=WIDEST)
    with closing(LlamaContext(model, cancel, options)) as context:
        if context.native.most_removed == 0:
            return SafeWidths((1,), {})
        depths = [d for d in depths if d + WIDEST + FIXED_WIDTH < n_ctx]
        on_tokens = _Comparison(model, options, cancel, depths, _tokens(model, n_ctx, depths))
        if not context.native.can_truncate:
            return on_tokens.of_snapshots(context, _Work(on_progress))
    work = _Work(on_progress, on_tokens.most_padded())
    found = on_tokens.of_widths(0, WIDEST, work)
    if 2 not in found.widths:
        found = on_tokens.padded(found, most_price, work)
    on_progress(1.0)
    return found


@dataclass(slots=True, eq=False)
class _Work:
    """How much of the comparisons is done. It counts passes, which take about as long as one another.

    Args:
        on_progress: called with the share that is done, which never falls.
        later: passes of the comparison with padded ones, which is needed where two tokens are not exact. Another one
            behind that is rare, and counts once it begins.
    """

    on_progress: Callable[[float], None]
    later: int = 0
    before: int = 0
    done: int = 0
    share: float = 0.0

    def __call__(self, done: int, left: int, exact: bool | None) -> None:
        """Take in how far a comparison is; see `_Counted`."""
        self.done, gone = done, self.before + done
        total = gone + left + (0 if exact else self.later)
        self.share = max(self.share, gone / total if total else 1.0)
        self.on_progress(self.share)

    def begin(self) -> None:
        """Begin a comparison with padded passes."""
        self.before, self.done, self.later = self.before + self.done, 0, 0


@dataclass(frozen=True, slots=True, eq=False)
class _Comparison:
    """Where passes are compared: of a model, in contexts of their own, behind so many tokens of these."""

    model: LlamaModel
    options: LoadOptions
    cancel: CancelFlag | None
    depths: Sequence[int]
    tokens: Sequence[int]

    def of_widths(self, least: int, widest: int, counted: "_Counted") -> SafeWidths:
        """Compare passes up to a width, all of them padded to `least` tokens; 0 pads none."""
        on_gpu, made_of = self.model.on_gpu, (self.model, self.cancel, self.options)
        with closing(LlamaContext(*made_of) if on_gpu else TracedContext(*made_of)) as context:
            context.native.fix_width(least)
            rows = _WithHidden(context) if isinstance(context, LlamaContext) else context
            return _compared(rows, self.tokens, self._depths(least), counted, widest)

    def _depths(self, least: int) -> list[int]:
        """Return the depths at which passes are compared that are padded to so many tokens."""
        # Behind these, a padded pass ends where a block of the cache does, and single tokens, padded, reach into the next.
        across = range(_BLOCK - least, max(self.depths, default=0), _BLOCK) if least else ()
        return sorted({*self.depths, *across})

    def _candidates(self) -> tuple[Sequence[int], int]:
        """Return to how many tokens passes may be padded, the least first, and the widest of them."""
        return ((FIXED_WIDTH,), FIXED_WIDTH) if self.model.on_gpu else (LEAST_WIDTHS, WIDEST)

    def most_padded(self) -> int:
        """Return how many passes `padded` compares, if the first candidate will do."""
        candidates, widest = self._candidates()
        return _passes(len(self._depths(candidates[0])), widest, widest - 1)

    def padded(self, found: SafeWidths, most_price: float, work: _Work) -> SafeWidths:
        """Return what was found, with what padded passes may be, if they are exact and not too dear."""
        candidates, widest = self._candidates()
        for least in candidates:
            found = replace(found, price=self.price(least))
            if found.price > most_price:
                break
            work.begin()
            padded = self.of_widths(least, widest, work)
            if padded.longest >= least:
                return replace(found, fixed=least, most=padded.longest)
        return found

    def price(self, width: int) -> float:
        """Return how many times as long as a pass of one token one of so many takes."""
        with closing(LlamaContext(self.model, self.cancel, self.options)) as context:
            start = min([*self.depths, context.n_ctx // 2])
            fastest = dict.fromkeys((1, width), math.inf)
            for _ in range(_TIMED):
                for each in fastest:
                    context.prefill(self.tokens[:start])
                    context.truncate(start)
                    before = time.perf_counter()
                    context.logits(self.tokens[: start + each], rows=each)
                    fastest[each] = min(fastest[each], time.perf_counter() - before)
            return fastest[width] / fastest[1]

    def of_snapshots(self, context: LlamaContext, counted: "_Counted") -> SafeWidths:
        """Compare passes of a recurrent model, which go back to snapshots."""
        options = replace(self.options, max_rows=1)
        with closing(LlamaContext(self.model, self.cancel, options)) as alone:
            widest = min(WIDEST, context.native.most_removed + 1)
            rewound = Rewound(context, alone)
            rewound.hidden = True
            return _compared(rewound, self.tokens, self.depths, counted, widest)


_Counted = Callable[[int, int, bool | None], None]
"""Gets how many passes of a comparison are done, how many are left, and whether two tokens were exact so far; None while that is not known."""


def _passes(depths: int, widest: int, widths: int) -> int:
    """Return how many passes are compared at so many depths, besides those of single tokens that come with each.

    At each depth single tokens are evaluated first, as many as the widest pass has.
    """
    return depths * (widest + widths) if widths else 0


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
        hidden: whether rows hold the last hidden ones, too. Kernels of convolutions round otherwise by the last bit, which
            the quantisation of what goes into a matrix mostly hides, until one day it does not.
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


class _WithHidden:
    """A context whose rows hold the last hidden ones, too."""

    def __init__(self, context: LlamaContext) -> None:
        self._context = context
        self.prefill, self.truncate = context.prefill, context.truncate

    def logits(self, tokens: Sequence[int], rows: int) -> Logits:
        """Return rows; see `LanguageModel`."""
        return _hidden(self._context, tokens, rows)


def _logits(model: LlamaContext, tokens: Sequence[int], rows: int) -> Logits:
    return model.logits(tokens, rows)


def _hidden(context: LlamaContext, tokens: Sequence[int], rows: int) -> Logits:
    """Return the logits of a pass over `rows` tokens, and behind them the last hidden rows, which the head takes."""
    width = int(native.llama_model_n_embd_out(context.model.handle))
    native.llama_set_embeddings(context.native.handle, True)
    try:
        logits = context.logits(tokens, rows)
        rows_of = [
            native.llama_get_embeddings_ith(context.native.handle, row) for row in range(rows)
        ]
        hidden = np.stack([np.ctypeslib.as_array(row, shape=(width,)) for row in rows_of])
        return np.hstack([logits, hidden])
    finally:
        native.llama_set_embeddings(context.native.handle, False)


def _compared(
    model: Compared,
    tokens: Sequence[int],
    depths: Sequence[int],
    counted: _Counted,
    widest: int = WIDEST,
) -> SafeWidths:
    """Compare at several depths; a width that is unsafe at one is not tried again."""
    unsafe: dict[int, float] = {}
    tried, done = list(range(2, widest + 1)), 0
    left, exact = _passes(len(depths), widest, len(tried)), None

    def count_width() -> None:
        nonlocal done, left
        done, left = done + 1, left - 1
        counted(done, left, exact)

    counted(0, left, exact)
    for after, depth in zip(reversed(range(len(depths))), depths, strict=True):
        done, left = done + widest, left - widest  # single tokens, of which none is counted
        unsafe |= differences_at(model, tokens, depth, tried, count_width)
        tried = [width for width in tried if width not in unsafe]
        left, exact = _passes(after, widest, len(tried)), 2 not in unsafe
        if not tried:
            break
    counted(done, 0, exact)
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


def _tokens(model: LlamaModel, count: int, depths: Sequence[int] = ()) -> list[int]:
    """Return a text, in which one token is said again and again behind every other depth.

    Experts that all tokens of a pass choose have as many rows as it has, and kernels of their own then.
    """
    text = model.vocabulary.tokenize(_TEXT, add_special=False, parse_special=False)
    tokens = (text * (count // max(1, len(text)) + 1))[:count]
    for depth in depths[1::2]:
        tokens[depth : depth + WIDEST + 1] = [tokens[depth]] * (WIDEST + 1)
    return tokens
