"""Measurements to JSON and back; what comes back is believed only where it makes sense."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from localspec.decoding.costs import PassCosts
from localspec.llama.safe_widths import SafeWidths
from localspec.llama.timed_passes import Measured

_WIDEST = 4096
_SLOWEST_S = 1000.0
_TRIES = 3


@dataclass(frozen=True, slots=True)
class KeptCosts:
    """Costs as they are kept.

    Args:
        costs: of each width, the fastest pass of every run that measured.
        doubts: how often they are measured again, since other programs disturbed it so far.
    """

    costs: PassCosts
    doubts: int = 0

    @property
    def sure(self) -> bool:
        """Whether they were measured while the machine was quiet, or often enough."""
        return self.doubts == 0

    def is_measured_again(self, *, busy: bool) -> bool:
        """Return whether they are to be measured again now; the last time waits until other programs rest.

        Args:
            busy: whether they take much of the machine.
        """
        return self.doubts > (1 if busy else 0)

    @classmethod
    def of(cls, measured: Measured, before: "KeptCosts | None") -> "KeptCosts":
        """Return what is to be kept, given what was."""
        costs = measured.costs if before is None else fastest(measured.costs, before.costs)
        left = _TRIES - 1 if before is None else before.doubts - 1
        return cls(costs, max(0, left) if measured.disturbed else 0)


def fastest(one: PassCosts, other: PassCosts) -> PassCosts:
    """Return the lower cost of every width that either knows."""
    seconds = dict(zip(one.widths, one.seconds, strict=True))
    for width, took in zip(other.widths, other.seconds, strict=True):
        seconds[width] = min(took, seconds.get(width, took))
    widths = tuple(sorted(seconds))
    return PassCosts(widths, tuple(seconds[width] for width in widths))


def costs_to_json(kept: KeptCosts) -> Mapping[str, object]:
    """Return costs as JSON can hold them."""
    costs = kept.costs
    return {
        "widths": list(costs.widths),
        "seconds": list(costs.seconds),
        "doubts": kept.doubts,
    }


def costs_from_json(value: Any) -> KeptCosts | None:
    """Return the costs that a cache held; None where they cannot be."""
    try:
        widths, seconds, doubts = tuple(value["widths"]), tuple(value["seconds"]), value["doubts"]
    except (TypeError, KeyError):
        return None
    if not _ascending(widths) or not all(_positive(number) for number in seconds):
        return None
    if type(doubts) is not int or not 0 <= doubts < _TRIES:
        return None
    try:
        return KeptCosts(PassCosts(widths, seconds), doubts)
    except ValueError:
        return None


def widths_to_json(safe: SafeWidths) -> Mapping[str, object]:
    """Return safe widths as JSON can hold them."""
    return {
        "widths": list(safe.widths),
        "differences": {str(width): gap for width, gap in safe.differences.items()},
    }


def widths_from_json(value: Any) -> SafeWidths | None:
    """Return the safe widths that a cache held; None where they cannot be."""
    try:
        widths = tuple(value["widths"])
        differences = {int(width): gap for width, gap in value["differences"].items()}
    except (TypeError, KeyError, ValueError, AttributeError):
        return None
    unsafe = tuple(sorted(differences))
    sound = (
        _ascending(widths)
        and widths[0] == 1
        and all(type(width) is int and 1 < width <= _WIDEST for width in unsafe)
        and not set(widths) & set(unsafe)
        and all(isinstance(gap, float) and gap >= 0 for gap in differences.values())
    )
    return SafeWidths(widths, differences) if sound else None


def _ascending(widths: tuple[Any, ...]) -> bool:
    return (
        bool(widths)
        and all(type(width) is int and 1 <= width <= _WIDEST for width in widths)
        and list(widths) == sorted(set(widths))
    )


def _positive(seconds: Any) -> bool:
    return isinstance(seconds, float) and math.isfinite(seconds) and 0 < seconds <= _SLOWEST_S
