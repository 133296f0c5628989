"""Ends a text before the first stop string, however the text was cut into tokens. Knows no tokens."""

from collections.abc import Iterable
from dataclasses import dataclass

from localspec.errors import UsageError


@dataclass(frozen=True, slots=True)
class Matched:
    """What one `feed` released: `emit` is safe to show, and nothing follows it once `stopped`."""

    emit: str
    stopped: bool


class StopStrings:
    """Passes text on up to the stop string that begins first, and holds back what may become one.

    Where one stop string begins inside another that is not complete yet, the earlier beginning is waited for; so the
    text is the same for every way of cutting it, and equals `text[:min(text.find(s) for s in stops found)]`.

    Args:
        stops: none at all lets everything pass.

    Attributes:
        cut: whether it ended elsewhere than at a stop string.

    Raises:
        UsageError: a stop string is empty.
    """

    cut = False

    def __init__(self, stops: Iterable[str] = ()) -> None:
        self._stops = tuple(stops)
        if "" in self._stops:
            raise UsageError('a stop string is "": give it at least one character')
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """Whether a stop string was found, by `feed` or by `flush`."""
        return self._stopped

    def feed(self, text: str) -> Matched:
        """Take the next text, which may be empty, and return what is now certain to be kept."""
        if self._stopped:
            return Matched("", stopped=True)
        self._held += text
        return Matched(self._release(final=False), self._stopped)

    def flush(self) -> str:
        """Return what was held back, at the end of the text; a stop string in it still counts."""
        return "" if self._stopped else self._release(final=True)

    def _release(self, *, final: bool) -> str:
        held = self._held
        found = [at for stop in self._stops if (at := held.find(stop)) >= 0]
        match = min(found, default=len(held))
        first_unsure = max(0, len(held) - self._longest + 1)
        unsure = (at for at in range(first_unsure, match) if self._may_become_stop(held[at:]))
        cut = match if final else next(unsure, match)
        self._stopped = bool(found) and cut == match
        self._held = "" if self._stopped else held[cut:]
        return held[:cut]

    def _may_become_stop(self, text: str) -> bool:
        return any(stop.startswith(text) for stop in self._stops)
