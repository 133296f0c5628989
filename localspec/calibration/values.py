"""Measurements to JSON and back; what comes back is believed only where it makes sense."""

import math
from collections.abc import Mapping
from typing import Any

from localspec.decoding.costs import PassCosts
from localspec.llama.safe_widths import SafeWidths

_WIDEST = 4096
_SLOWEST_S = 1000.0


def costs_to_json(costs: PassCosts) -> Mapping[str, object]:
    """Return costs as JSON can hold them."""
    return {"widths": list(costs.widths), "seconds": list(costs.seconds)}


def costs_from_json(value: Any) -> PassCosts | None:
    """Return the costs that a cache held; None where they cannot be."""
    try:
        widths, seconds = tuple(value["widths"]), tuple(value["seconds"])
    except (TypeError, KeyError):
        return None
    if not _ascending(widths) or not all(_positive(number) for number in seconds):
        return None
    try:
        return PassCosts(widths, seconds)
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
