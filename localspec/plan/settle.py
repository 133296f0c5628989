"""Settle: what a plan comes to once its models are loaded and measured. Pure, as `decide` is, which it completes.

How many sequences there are, how wide their passes may be, and whether a draft model pays beside so many depends on what passes
cost here; a first load measures that.
"""

import math
from dataclasses import dataclass, replace

from localspec.decoding.costs import PairCosts, PassCosts, best_count
from localspec.decoding.drafters.branches import MOST_BRANCHES
from localspec.decoding.gain import COMPARED_ERROR
from localspec.errors import MemoryShort
from localspec.llama.safe_widths import SafeWidths
from localspec.options import LoadOptions
from localspec.plan.fit import FreeMemory
from localspec.plan.load_plan import LoadPlan
from localspec.plan.payoff import is_idle

MOST_SEQUENCES = 64
"""Beyond it no pass was ever measured."""
_CHUNK_STEP = 16
_LEAST_CHUNK = 64
"""Narrower passes mostly read weights: in chunks of 16 or 32, a prompt takes an eighth to a quarter longer."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What is made of the models.

    Args:
        plan: with as many sequences as there are, without a draft model that never pays beside so many, and without heads where
            passes are padded, whose rows they do not read.
        costs: what passes take, as they are made.
        exact: how wide they may be; None where that is not limited.
    """

    plan: LoadPlan
    costs: PairCosts | None
    exact: SafeWidths | None

    @property
    def most_rows(self) -> int:
        """Rows of a pass of several sequences."""
        exact = self.exact
        return MOST_SEQUENCES if exact is None else max(exact.longest, exact.fixed)

    @property
    def longest(self) -> int:
        """Most tokens of a draft, as far as bits and memory allow."""
        exact = self.exact
        if exact is None:
            return MOST_SEQUENCES - 1
        return 0 if exact.fixed and self.plan.heads is not None else exact.longest - 1


def settle(
    plan: LoadPlan,
    options: LoadOptions,
    costs: PairCosts | None,
    exact: SafeWidths | None,
    free: FreeMemory | None = None,
    *,
    on_gpu: bool,
    at_most: bool = False,
) -> Settled:
    """Return what is made of models that were loaded by a plan.

    Args:
        plan: without a draft model that cannot draft.
        options: how sequences of the target are made.
        costs: what passes take; None where nothing depends on it.
        exact: how wide passes may be that change no bit; None where any may.
        free: what is free beside the weights; None where that does not matter.
        on_gpu: whether layers of the target are on a GPU.
        at_most: whether fewer will do.

    Raises:
        MemoryShort: there is no memory for so many sequences.
    """
    if plan.parallel != 1:
        count, notes = _count(plan, options, costs, exact, free, at_most=at_most)
        plan = replace(plan, parallel=count, notes=(*plan.notes, *notes))
        if plan.heads is None and is_idle(plan, costs, count):
            plan = replace(plan, draft_model=None)
        if exact is not None and count > 1 and on_gpu:
            # There, padded passes were never measured with several.
            exact = replace(exact, fixed=0, most=0, price=0.0)
    if exact is not None and exact.fixed:
        costs = None if costs is None else padded(costs, exact)
        if plan.heads is not None and not plan.needs_heads:
            plan = plan.undrafted()
    return Settled(plan, costs, exact)


def _count(
    plan: LoadPlan,
    options: LoadOptions,
    costs: PairCosts | None,
    exact: SafeWidths | None,
    free: FreeMemory | None,
    *,
    at_most: bool,
) -> tuple[int, tuple[str, ...]]:
    """Return how many sequences there are to be, and what to tell about that."""
    wanted, notes = plan.parallel, list[str]()
    assert costs is not None, "they are measured for several"  # noqa: S101
    # Padded passes are of one sequence each, so that several gain nothing.
    safe = MOST_SEQUENCES if exact is None else 1 if exact.fixed else exact.longest
    fits = None
    if free is not None and plan.pair is not None:
        pair = replace(plan.pair, options=options, draft_options=plan.draft_options)
        pair = pair if plan.drafts_by_passes else pair.undrafted()
        fits = pair.sequences(free)
    holds = MOST_SEQUENCES if fits is None else min(fits, MOST_SEQUENCES)
    if wanted is not None and wanted > holds and at_most:
        notes.append(f"{wanted} answers at a time do not fit into the free memory")
        wanted = holds = max(holds, 1)  # the plan is of one
    if wanted is not None and wanted > holds:
        raise MemoryShort(
            f"{wanted} sequences of {options.context} tokens do not fit into the free memory, "
            f"{holds} would: give a smaller --parallel or --ctx"
        )
    number = wanted or best_count(costs.target, max(1, min(holds, safe)))
    if number > 1:
        notes.append(f"{number} answers at a time")
    elif wanted is not None:
        notes.append("one answer at a time")
    else:
        is_short = holds <= 1 < best_count(costs.target, safe)
        why = "do not fit into the free memory" if is_short else "would gain nothing"
        notes.append(f"one answer at a time: more {why}")
    return number, tuple(notes)


def padded(costs: PairCosts, exact: SafeWidths) -> PairCosts:
    """Return what passes cost where each has so many tokens at least."""
    table, least = costs.target, exact.fixed
    seconds = {1: table.of(least), least: table.of(least)}
    seconds |= {width: table.of(width) for width in table.widths if least < width <= exact.most}
    return replace(costs, target=PassCosts((*seconds,), (*seconds.values(),)))


def branches(plan: LoadPlan, *, on_gpu: bool) -> int:
    """Return how many branches a pass of a lone sequence may have.

    Kernels of a GPU add up what is masked and what is not in an order of their own, and no width was measured with
    branches; those of a CPU leave out what is masked.
    """
    drafts = plan.draft_model is not None and plan.heads is None and plan.is_adaptive
    return MOST_BRANCHES if drafts and not (plan.exact and on_gpu) else 0


def shared_chunk(costs: PairCosts | None, hold_up_s: float | None) -> int | None:
    """Return how many tokens of a prompt are evaluated in so many seconds, but no fewer than are worth a pass."""
    if hold_up_s is None:
        return None
    if costs is None:
        return _LEAST_CHUNK
    widest = max(costs.target.widths)
    steps = int(hold_up_s * widest / costs.target.of(widest) / _CHUNK_STEP)
    return max(_LEAST_CHUNK, _CHUNK_STEP * steps)


def price(
    longest: int, exact: SafeWidths, exact_s: float | None, usual_s: float | None, *, drafts: bool
) -> str:
    """Return what `--exact` does to drafts, and what it costs.

    Args:
        longest: most tokens of a draft.
        exact: how wide passes may be.
        exact_s: seconds of a plain token; None where they are not known, as are those of other passes.
        usual_s: those without `--exact`.
        drafts: whether drafts are wanted.
    """
    text = exact_drafts(longest, exact) if drafts else "exact: no drafts"
    if exact_s is None:
        return text
    text += f"; a plain token takes {1000 * exact_s:.1f} ms"
    if usual_s is None:
        return f"{text}, and less without --exact: how much is known after a run without it"
    if abs(math.log(exact_s / usual_s)) <= COMPARED_ERROR:
        return f"{text}; what a token takes without --exact differs too little to be known"
    return f"{text}, and {1000 * usual_s:.1f} ms without --exact"


def exact_drafts(longest: int, exact: SafeWidths) -> str:
    """Return in a line what `--exact` leaves of drafts of up to `longest` tokens."""
    if exact.longest == 1:
        text = (
            "exact: nothing is drafted, as passes of two tokens round otherwise than those of one"
        )
        dear = f", and padding them to two would make each take {exact.price:.1f} times as long"
        return text + dear * (exact.price > 1)
    text = f"exact: drafts of up to {longest} tokens"
    return text + f", in passes of {exact.fixed} tokens or more" * bool(exact.fixed)
