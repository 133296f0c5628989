"""A server of this user that has the model in memory already answers for `run`, `chat` and `batch`."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from localspec.errors import LocalspecError
from localspec.options import LaunchOptions

if TYPE_CHECKING:
    from localspec.engine.shared import SharedEngine
    from localspec.serve.running import Running


def recorded_here() -> str:
    """Return what this program would record of replies: `text`, `counts`, or nothing."""
    from localspec.launch.recording import recording  # noqa: PLC0415 - few need it

    switch = recording()
    return "" if switch is None else "text" if switch.text else "counts"


def resident(options: LaunchOptions, flags: Mapping[str, Any]) -> "SharedEngine | None":
    """Return the engine of a server that has this in memory and answers as this program would; None without one.

    Args:
        options: what is to be loaded.
        flags: of the verb; some are of one's own engine alone.
    """
    if flags["own"] or flags.get("workload") or "--debug" in sys.argv:
        return None
    from localspec.serve.running import servers  # noqa: PLC0415 - likewise

    # What is wrong with names or directories is told by whoever loads.
    with suppress(LocalspecError, OSError, RuntimeError, ValueError):
        running = [each for each in servers() if each.engine and each.records == recorded_here()]
        if not running:
            return None
        from localspec.launch.names import with_full_names  # noqa: PLC0415 - and few have a server

        return first_of(running, with_full_names(options))
    return None


def first_of(running: "Sequence[Running]", wanted: LaunchOptions) -> "SharedEngine | None":
    """Return the first that has the models in memory; where none has, the first that would load them again."""
    from localspec.engine.shared import shared_engine  # noqa: PLC0415 - likewise

    chosen: SharedEngine | None = None
    resting: list[SharedEngine] = []
    for each in running:
        found = shared_engine(each.engine, each.pid, wanted)
        if found is not None and not found.rests:
            chosen = found
            break
        resting += [] if found is None else [found]
    chosen = chosen or next(iter(resting), None)
    for other in resting:
        if other is not chosen:
            other.end(0)
    return chosen
