"""Waiting for a state: as long as a busy machine may take, and no longer than it takes here."""

import time
from collections.abc import Callable

PATIENCE_S = 120.0
"""Longer than anything takes here, however busy the machine is: only what never comes takes so long."""
_LOOK_S = 0.005


def until(holds: Callable[[], object], patience_s: float = PATIENCE_S) -> bool:
    """Wait until something holds; return whether it does."""
    end_s = time.monotonic() + patience_s
    while not (found := holds()) and time.monotonic() < end_s:
        time.sleep(_LOOK_S)
    return bool(found)
