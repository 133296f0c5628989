"""What a pass of a model costs by its width, measured on a context of its own.

Knows no cache, no drafter and no policy: a model in, seconds out, within a bounded time.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from localspec.decoding.cancel import CancelFlag
from localspec.decoding.costs import PassCosts
from localspec.llama.context import LlamaContext
from localspec.llama.model import LlamaModel
from localspec.llama.options import LoadOptions

_WIDEST = 64
_N_CTX = 512
_TOKEN = 100  # any: a pass takes as long whatever it evaluates


@dataclass(frozen=True, slots=True)
class Schedule:
    """Which widths are measured, and for how long.

    Args:
        widths: the most telling ones first; a slow model gets no further than time allows.
        budget_s: seconds to spend, after which nothing begins but what is `needed`.
        needed: how many of `widths` are measured at least once though the budget is used up.
        most_s: seconds after which even these are left out, all but the first.
        every_row: ask for the logits of every token, as verification does, or of the last only.
    """

    widths: tuple[int, ...]
    budget_s: float
    needed: int
    most_s: float
    every_row: bool


OF_TARGET = Schedule(
    widths=(1, 2, 4, 8, 16, 3, 5, 6, 12, 7, 10, 14, 32, 24, 64, 20, 48, 40),
    budget_s=3.0,
    needed=12,
    most_s=6.0,
    every_row=True,
)
# A draft model drafts one token a pass, and catches up by what was confirmed without it.
OF_DRAFT_MODEL = Schedule(
    widths=(1, 2, 3, 4, 8, 16, 32), budget_s=1.0, needed=3, most_s=2.0, every_row=False
)


def measure_pass_costs(
    model: LlamaModel,
    options: LoadOptions,
    schedule: Schedule = OF_TARGET,
    cancel: CancelFlag | None = None,
    on_progress: Callable[[float], None] = lambda _share: None,
) -> PassCosts:
    """Measure what passes of a model take, beside whatever contexts it has.

    Args:
        model: the weights.
        options: how the context is made whose passes are meant; its size does not matter here.
        schedule: which widths, and for how long.
        cancel: stops it.
        on_progress: called with the share of the time that has gone, 0 to 1.

    Raises:
        Cancelled: the flag was set.
        ModelLoadError: there is no memory for one more, small context.
    """
    rows = _WIDEST if schedule.every_row else 1
    n_ctx = min(_N_CTX, model.n_ctx_train)
    small = replace(options, n_ctx=n_ctx, n_batch=_WIDEST, max_rows=rows)
    context = LlamaContext(model, cancel, small)
    widest = min(_WIDEST, n_ctx // 2)
    depth = widest if context.can_truncate else 0
    tokens = [_TOKEN % context.n_vocab] * (depth + widest)

    def run_pass(width: int) -> None:
        context.truncate(depth)
        end = depth + width
        context.logits(tokens[:end], rows=width if schedule.every_row else 1)

    try:
        # The first pass wakes threads and touches every weight; its tokens are the ones before.
        context.prefill(tokens[:widest])
        fitting = tuple(width for width in schedule.widths if width <= widest)
        return sample(run_pass, replace(schedule, widths=fitting), time.perf_counter, on_progress)
    finally:
        context.close()


def sample(
    run_pass: Callable[[int], None],
    schedule: Schedule,
    clock: Callable[[], float],
    on_progress: Callable[[float], None] = lambda _share: None,
) -> PassCosts:
    """Time passes until the budget is used up; of each width the fastest counts.

    Whichever width has had the least time so far comes next, so that the narrow ones, of which
    everything else is a multiple, are repeated most. What disturbs a pass only makes it slower,
    so the fastest is the one that was disturbed least.

    Args:
        run_pass: makes a pass of a width.
        schedule: which widths, and for how long.
        clock: seconds.
        on_progress: called with the share of the time that has gone, 0 to 1.
    """
    spent: dict[int, float] = {}
    fastest: dict[int, float] = {}
    start = now = clock()
    while (width := _next_width(schedule, spent, fastest, now - start)) is not None:
        run_pass(width)
        before, now = now, clock()
        took = max(now - before, 1e-9)  # a coarse clock may see none
        spent[width] = spent.get(width, 0.0) + took
        fastest[width] = min(took, fastest.get(width, math.inf))
        on_progress(min(1.0, (now - start) / schedule.budget_s))
    widths = tuple(sorted(fastest))
    return PassCosts(widths, tuple(fastest[width] for width in widths))


def _next_width(
    schedule: Schedule, spent: dict[int, float], fastest: dict[int, float], elapsed_s: float
) -> int | None:
    """Return the width to measure next; None when it is time to stop."""
    for place, width in enumerate(schedule.widths):
        if width in spent:
            continue
        needed = place == 0 or (place < schedule.needed and elapsed_s < schedule.most_s)
        if needed or elapsed_s + _at_most(width, fastest) <= schedule.budget_s:
            return width
    affordable = [w for w in spent if elapsed_s + fastest[w] <= schedule.budget_s]
    return min(affordable, key=lambda width: spent[width], default=None)


def _at_most(width: int, fastest: dict[int, float]) -> float:
    """Return seconds that a pass of a width not yet measured is unlikely to exceed."""
    return min((seconds * max(1.0, width / w) for w, seconds in fastest.items()), default=0.0)
