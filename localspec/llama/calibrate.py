"""What a pass of a model costs by its width, measured on a context of its own.

Knows no cache, no drafter and no policy: a model in, seconds out, within a bounded time.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from localspec.decoding.cancel import CancelFlag
from localspec.llama.model import LlamaModel
from localspec.llama.sequence import LlamaContext
from localspec.llama.timed_passes import Measured, Schedule, sample
from localspec.options import LoadOptions

_WIDEST, _WARM_UP = 64, 16
_N_CTX = 512
_TOKEN = 100  # any: a pass takes as long whatever it evaluates

# Kernels take 4, 8 or 16 tokens at a time, and what remains one by one: a cost falls where a width
# is such a multiple, and leaps behind it. So both sides of 8 and 16 are among the first.
OF_TARGET = Schedule(
    widths=(1, 2, 3, 4, 5, 6, 8, 16, 12, 7, 10, 14, 17, 32, 15, 24, 11, 9, 20, 13, 64, 48, 40),
    budget_s=3.6,
    first_s=2.3,
    needed=12,
    most_s=6.0,
    enough=6,
    every_row=True,
)
# A draft model drafts one token a pass, and catches up by what was confirmed without it.
OF_DRAFT_MODEL = Schedule(
    widths=(1, 2, 3, 4, 8, 16, 32),
    budget_s=0.7,
    first_s=0.5,
    needed=4,
    most_s=2.0,
    enough=6,
    every_row=False,
)


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
    rows = _WIDEST if schedule.every_row else 1
    n_ctx = min(_N_CTX, model.n_ctx_train)
    small = replace(options, n_ctx=n_ctx, n_batch=_WIDEST, max_rows=rows)
    context = LlamaContext(model, cancel, small)
    depth = min(_WARM_UP, n_ctx // 4) if context.native.can_truncate else 0
    widest = min(_WIDEST, n_ctx // 2)
    tokens = [_TOKEN % context.n_vocab] * (depth + widest)

    def run_pass(width: int) -> None:
        context.truncate(depth)
        end = depth + width
        context.logits(tokens[:end], rows=width if schedule.every_row else 1)

    try:
        # The first pass wakes threads and touches every weight; its tokens stay before the others.
        context.logits(tokens[:_WARM_UP], rows=1)
        fitting = tuple(width for width in schedule.widths if width <= widest)
        measured = sample(
            run_pass, replace(schedule, widths=fitting), time.perf_counter, on_progress
        )
        return replace(measured, gave_way=context.native.gave_way)
    finally:
        context.close()
