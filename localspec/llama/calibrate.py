"""What a pass of a model costs by its width, measured on a context of its own, within a bounded time.

Knows no cache, no drafter and no policy: a model in, seconds out.
"""

import math
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from statistics import median

from localspec.decoding.cancel import CancelFlag
from localspec.decoding.costs import PassCosts
from localspec.llama.devices import REMOTE, placed_on
from localspec.llama.model import LlamaModel
from localspec.llama.sequence import LlamaContext
from localspec.options import LoadOptions

_WIDEST, _WARM_UP = 64, 16
_N_CTX = 512
_TOKEN = 100  # any: a pass takes as long whatever it evaluates
_DISTURBED, _AGREED = 1.2, 1.05
_BLOCK = 4
"""Kernels take so many tokens together, and what remains one by one: costs fall at no other width."""
_IN_A_ROW, _ROW_S = 4, 0.04
"""Plain passes of a target come in a row, for which a device may prepare (CUDA's graphs): as many are made at once, within
these seconds. Those of a draft model come a few at a time."""
_CHECKED = 4
"""Passes of a width after which it may well be dearer than a wider one: kernels have such stairs."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Which widths are measured, and for how long.

    Args:
        widths: the most telling ones first; a slow model gets no further than time allows.
        budget_s: seconds to spend.
        first_s: seconds of it after which no width is begun, and those there are repeated.
        needed: how many of `widths` are measured at least once, though the time is used up.
        most_s: seconds after which even these are left out, all but the first.
        enough: how often each is measured at most.
        every_row: ask for the logits of every token, as verification does, or of the last only.
    """

    widths: tuple[int, ...]
    budget_s: float
    first_s: float
    needed: int
    most_s: float
    enough: int = 6
    every_row: bool = False


# Kernels take 4, 8 or 16 tokens at a time, and what remains one by one: a cost falls where a width
# is such a multiple, and leaps behind it. So both sides of 8 and 16 are among the first.
OF_TARGET = Schedule(
    (1, 2, 3, 4, 5, 6, 8, 16, 12, 7, 10, 14, 17, 32, 15, 24, 11, 9, 20, 13, 64, 48, 40),
    budget_s=3.6,
    first_s=2.3,
    needed=12,
    most_s=6.0,
    every_row=True,
)
# A draft model drafts one token a pass, and catches up by what was confirmed without it.
OF_DRAFT_MODEL = Schedule((1, 2, 3, 4, 8, 16, 32), budget_s=0.7, first_s=0.5, needed=4, most_s=2.0)


@dataclass(frozen=True, slots=True)
class Measured:
    """Costs, and how far they can be relied on.

    Args:
        costs: of each width, the fastest pass.
        spread: how many times the fastest the second fastest took, the median over all widths:
            below 1.05 where nothing else runs. None where no pass was repeated.
        gave_way: whether passes had fewer threads than they will have when nothing else runs.
    """

    costs: PassCosts
    spread: float | None
    gave_way: bool = False

    @property
    def disturbed(self) -> bool:
        """Whether other programs took so much of the machine that costs may be far too high."""
        if self.gave_way or self.spread is None or self.spread > _DISTURBED:
            return True
        times = {w: [s] for w, s in zip(self.costs.widths, self.costs.seconds, strict=True)}
        return any(_is_outdone(width, times) for width in times)


def sample(
    run_pass: Callable[[int], None],
    schedule: Schedule,
    clock: Callable[[], float],
    on_progress: Callable[[float], None] = lambda _share: None,
    *,
    tries: bool = False,
) -> Measured:
    """Time passes until the budget is used up; of each width the fastest counts.

    What disturbs a pass only makes it slower, so the fastest is the one that was disturbed least.
    As in decoding, a plain pass comes behind others, and a wide one behind one of another width.
    Each width is measured once, then twice, then again while its two fastest passes disagree, or
    a wider pass was no slower, for a slow moment may have caught both of them. In what time is left, whichever has had the least of it comes next: the narrow ones, mostly, which
    are most of what decoding does.

    Args:
        run_pass: makes a pass of a width.
        schedule: which widths, and for how long.
        clock: seconds.
        on_progress: called with the share of the time that has gone, 0 to 1.
        tries: make a pass of each width that is needed first, and count none of these: they take more than later ones.
    """
    for each in schedule.widths[: schedule.needed] if tries else ():
        run_pass(each)
    times: dict[int, list[float]] = {}
    start = clock()
    last = None
    while (width := _next_width(schedule, times, clock() - start, last)) is not None:
        last, begun, fastest_s = width, clock(), math.inf
        for _ in range(_IN_A_ROW if width == 1 and schedule.every_row else 1):
            before = clock()
            run_pass(width)
            now = clock()
            fastest_s = min(fastest_s, max(now - before, 1e-9))  # a coarse clock may see none
            if 2 * now - before - begun > _ROW_S:
                break
        times.setdefault(width, []).append(fastest_s)
        on_progress(min(1.0, (now - start) / schedule.budget_s))
    widths = tuple(sorted(times))
    costs = PassCosts(widths, tuple(min(times[width]) for width in widths))
    repeated = [sorted(times_s) for times_s in times.values() if len(times_s) > 1]
    return Measured(
        costs, median(times_s[1] / times_s[0] for times_s in repeated) if repeated else None
    )


def _next_width(
    schedule: Schedule, times: dict[int, list[float]], elapsed_s: float, last: int | None
) -> int | None:
    """Return the width to measure next; None when it is time to stop."""
    for place, width in enumerate(schedule.widths):
        if width in times:
            continue
        needed = place == 0 or (place < schedule.needed and elapsed_s < schedule.most_s)
        if needed or elapsed_s + _at_most(width, times) <= schedule.first_s:
            return width
    affordable = [
        width
        for width, times_s in times.items()
        if len(times_s) < schedule.enough and elapsed_s + min(times_s) <= schedule.budget_s
    ]
    return min(
        affordable, key=lambda w: (w == last, _settled(w, times), sum(times[w])), default=None
    )


def _settled(width: int, times: dict[int, list[float]]) -> int:
    """Return 0 for a width that was timed once, 1 while its times may be a disturbance, else 2."""
    times_s = times[width]
    if len(times_s) < 2:
        return 0
    fastest, second = sorted(times_s)[:2]
    if second > _AGREED * fastest:
        return 1
    if _is_outdone(width, times):
        return 1
    outdone = any(min(other) <= fastest for wider, other in times.items() if wider > width)
    return 1 if outdone and len(times_s) < _CHECKED else 2


def _is_outdone(width: int, times: dict[int, list[float]]) -> bool:
    """Return whether a pass cannot have taken so long: one of more tokens, whose kernels do all that its own do, took less."""
    return width % _BLOCK == 0 and any(
        _AGREED * min(other) < min(times[width])
        for wider, other in times.items()
        if width < wider < width + _BLOCK
    )


def _at_most(width: int, times: dict[int, list[float]]) -> float:
    """Return seconds that a pass of a width not yet measured is unlikely to exceed."""
    bounds = (min(times_s) * max(1.0, width / known) for known, times_s in times.items())
    return min(bounds, default=0.0)


def measure_pass_costs(
    model: LlamaModel,
    options: LoadOptions,
    schedule: Schedule = OF_TARGET,
    cancel: CancelFlag | None = None,
    on_progress: Callable[[float], None] = lambda _share: None,
) -> Measured:
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
    widest = max(_WIDEST, *schedule.widths)
    rows = widest if schedule.every_row else 1
    n_ctx = min(_N_CTX, model.n_ctx_train)
    small = replace(options, n_ctx=n_ctx, n_batch=widest, max_rows=rows)
    context = LlamaContext(model, cancel, small)
    depth = min(_WARM_UP, n_ctx // 4) if context.native.can_truncate else 0
    widest = min(widest, n_ctx // 2)
    tokens = [_TOKEN % context.n_vocab] * (depth + widest)

    def run_pass(width: int) -> None:
        context.truncate(depth)
        end = depth + width
        context.logits(tokens[:end], rows=width if schedule.every_row else 1)

    with closing(context):
        # The first pass wakes threads and touches every weight; its tokens stay before the others.
        context.logits(tokens[:_WARM_UP], rows=1)
        fitting = tuple(width for width in schedule.widths if width <= widest)
        schedule = replace(schedule, widths=fitting)
        # Of a worker the first pass of a width asks how large its tensors are: five round trips more, once in a process.
        tries = any(device.backend == REMOTE for device in placed_on(options))
        measured = sample(run_pass, schedule, time.perf_counter, on_progress, tries=tries)
        return replace(measured, gave_way=context.native.gave_way)
