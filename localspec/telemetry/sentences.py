"""Sentences: what a report's figures mean, for a terminal and a page alike."""

from localspec.telemetry.figures import Figures, Shift
from localspec.telemetry.moments import minute
from localspec.telemetry.plain_cost import LEAST_ROUNDS, PlainCost


def said_of_plain(cost: PlainCost) -> str:
    """Return where the price of a plain token is known from, as a sentence."""
    if cost.source == "measured":
        return f"{1000 * cost.base_s:.1f} ms, measured in {cost.rounds} rounds without a draft; compared by the hour, and by depth"
    if cost.source == "calibrated":
        return f"{1000 * cost.base_s:.1f} ms, as calibrated at a shallow depth: hardly a round ran without a draft"
    return "unknown: hardly a round ran without a draft, and nothing was calibrated"


def said_of_shift(shift: Shift) -> str:
    """Return what changed, as a sentence."""
    verb = "fell" if shift.after < shift.before else "rose"
    return (
        f"since {minute(shift.since_s)}: acceptance of {shift.drafter} on {shift.workload} {verb} "
        f"from {shift.before:.0%} to {shift.after:.0%} ({shift.pair})"
    )


def said_of_saving(total: Figures) -> str:
    """Return how much time drafting saved."""
    if total.drafted == 0:
        return "nothing was drafted"
    saved_s = total.saved_s
    if saved_s is None:
        return "what drafting saved is not known: too few rounds ran without a draft"
    plain = duration(total.compared.plain_s)
    if saved_s >= 0:
        return f"drafting saved {duration(saved_s)} of {plain}"
    return f"drafting took {duration(-saved_s)} more than {plain} without it"


def said_of_comparison(total: Figures) -> str | None:
    """Return what speed-up and time saved hold for; None where that is all, or nothing."""
    compared = total.compared
    if total.saved_s is None or compared.rounds == total.rounds:
        return None
    return (
        f"speed-up and time saved hold for {compared.rounds} of {total.rounds} rounds: those of hours with "
        f"drafts, and with {LEAST_ROUNDS} rounds or more without"
    )


def share(value: float | None) -> str:
    """Return a rate in per cent; nothing where there is none."""
    return "" if value is None else f"{value:.0%}"


def duration(seconds: float) -> str:
    """Return seconds as people read them."""
    if abs(seconds) < 120:
        return f"{seconds:.1f} s"
    if abs(seconds) < 7200:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"
