"""Facts about passes: what was measured here of each model, as runs with usual settings use it."""

from collections.abc import Callable, Iterator
from pathlib import Path

from localspec.calibration.calibrated import cached_costs, cached_widths
from localspec.decoding.costs import PassCosts
from localspec.decoding.model import Role
from localspec.diagnosis.fact import Fact
from localspec.llama.safe_widths import SafeWidths
from localspec.models.inventory import inventory
from localspec.models.registry import load_registry
from localspec.models.store import Store
from localspec.options import LoadOptions

_WIDE = 16


def passes(
    root: Path,
    costs: Callable[[Path, LoadOptions, Role], PassCosts | None] = cached_costs,
    widths: Callable[[Path, LoadOptions], SafeWidths | None] = cached_widths,
) -> Iterator[Fact]:
    """Yield, of each model in the store, what its passes cost and which widths are exact.

    Args:
        root: the data directory.
        costs: tells what passes of a file cost, where that was measured.
        widths: likewise which widths change no bit.
    """
    usual = LoadOptions()
    for item in inventory(load_registry(), Store(root)):
        if item.path is None:
            continue
        found = [
            *_cost_text(costs(item.path, usual, Role.TARGET), Role.TARGET),
            *_cost_text(costs(item.path, usual, Role.DRAFT_MODEL), Role.DRAFT_MODEL),
            *_width_text(widths(item.path, usual.exact())),
        ]
        text = (
            "; ".join(found)
            or "not measured yet: the first run measures it, and the first --exact run its own"
        )
        yield Fact("passes", item.name, text)


def _cost_text(costs: PassCosts | None, role: Role) -> Iterator[str]:
    if costs is None:
        return
    token_ms = 1000 * costs.of(1)
    if role is Role.DRAFT_MODEL:
        yield f"{token_ms:.1f} ms a token as draft model"
    else:
        yield f"{token_ms:.1f} ms a token, {1000 * costs.of(_WIDE):.0f} ms for {_WIDE} at once"


def _width_text(known: SafeWidths | None) -> Iterator[str]:
    if known is None:
        return
    widths = ", ".join(map(str, known.widths))
    worst = max(known.differences.values(), default=0.0)
    others = f", other widths are off by up to {worst:.2g}" if known.differences else ""
    yield f"with --exact passes of {widths} tokens are exact{others}"
