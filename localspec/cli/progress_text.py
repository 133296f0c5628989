"""One line that says how far downloads are, as wide as there is room. Pure: draws nothing."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from localspec.display import cells_of, cut, duration_text
from localspec.storage.paths import shown

if TYPE_CHECKING:
    from localspec.models.transfer import Progress

_BARS = (24, 12)
_SHORT_NAME = 16


def download_text(moments: Sequence["Progress"], rate: float, width: int) -> str:
    """Return how far several files are together, in at most `width` cells of a terminal.

    What is left out first is the bar, then the sizes, then names, and the rate before the time.

    Args:
        moments: where each file is.
        rate: bytes a second, of all together; 0 while nothing is known of it.
        width: cells that the line may take.
    """
    done = sum(each.done_bytes for each in moments)
    total = sum(each.total_bytes for each in moments)
    share = done / total if total else 1.0
    left = _left(total - done, rate)
    speed, sizes = f"{rate / 1e6:.1f} MB/s", _sizes(done, total)
    brief = f"{share:.0%}  {speed}  {left}"
    tails = [*(f"{_bar(share, cells)}  {sizes}" for cells in _BARS), sizes, f"{share:.0%}"]
    lines = [
        f"fetching {name}  {tail}  {speed}  {left}" for name in _names(moments) for tail in tails
    ]
    lines += [f"{name}  {brief}" for name in _names(moments)]
    lines += [brief, f"{share:.0%}  {left}", f"{share:.0%}"]
    return next((line for line in lines if cells_of(line) <= width), "")


def _names(moments: Sequence["Progress"]) -> Iterator[str]:
    """Yield what to call the files, the longest first."""
    if len(moments) == 1:
        name = shown(moments[0].name)
        yield name
        yield cut(name, _SHORT_NAME)
        return
    yield ", ".join(f"{shown(each.name)} {_share(each):.0%}" for each in moments)
    yield f"{len(moments)} files"


def _share(moment: "Progress") -> float:
    return moment.done_bytes / moment.total_bytes if moment.total_bytes else 1.0


def _bar(share: float, cells: int) -> str:
    full = min(int(share * cells), cells)
    return f"[{'=' * full}{' ' * (cells - full)}]"


def _sizes(done: int, total: int) -> str:
    if total >= 1e9:
        return f"{done / 1e9:.2f} of {total / 1e9:.2f} GB"
    return f"{done / 1e6:.0f} of {total / 1e6:.0f} MB"


def _left(missing: int, rate: float) -> str:
    if missing <= 0:
        return "checking"
    return f"{duration_text(missing / rate)} left" if rate > 0 else "waiting"
