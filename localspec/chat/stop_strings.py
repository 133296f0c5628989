"""Where an answer ends before its model ends it, however the text was cut into tokens. Knows no tokens."""

import re
from collections.abc import Callable, Iterable

from localspec.errors import UsageError
from localspec.messages import Infill

_LINE = re.compile(r"\n([ \t]*)")


class StopStrings:
    """Passes text on up to the stop string that begins first, and holds back what may become one.

    Where one stop string begins inside another that is not complete yet, the earlier beginning is waited for; so the
    text is the same for every way of cutting it, and equals `text[:min(text.find(s) for s in stops found)]`.

    Args:
        stops: none at all lets everything pass.

    Attributes:
        stopped: whether a stop string was found, by `feed` or by `flush`.
        cut: whether it ended elsewhere than at a stop string.

    Raises:
        UsageError: a stop string is empty.
    """

    def __init__(self, stops: Iterable[str] = ()) -> None:
        self._stops = tuple(stops)
        if "" in self._stops:
            raise UsageError('a stop string is "": give it at least one character')
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""
        self.stopped = self.cut = False

    def feed(self, text: str) -> str:
        """Take the next text, which may be empty, and return what is now certain to be kept."""
        if self.stopped:
            return ""
        self._held += text
        return self._release(final=False)

    def flush(self) -> str:
        """Return what was held back, at the end of the text; a stop string in it still counts."""
        return "" if self.stopped else self._release(final=True)

    def _release(self, *, final: bool) -> str:
        held = self._held
        found = [at for stop in self._stops if (at := held.find(stop)) >= 0]
        match = min(found, default=len(held))
        first_unsure = max(0, len(held) - self._longest + 1)
        unsure = (at for at in range(first_unsure, match) if self._may_become_stop(held[at:]))
        cut = match if final else next(unsure, match)
        self.stopped = bool(found) and cut == match
        self._held = "" if self.stopped else held[cut:]
        return held[:cut]

    def _may_become_stop(self, text: str) -> bool:
        return any(stop.startswith(text) for stop in self._stops)


class InfillStop(StopStrings):
    """Ends what fills a gap: at a stop string, or at the end of a line, before one that is indented less or when it took long enough.

    An empty line is one that is not indented, as for llama-server, whose `n_indent` and `t_max_predict_ms` these are.

    Args:
        stops: stop strings.
        gap: says how far lines are indented, and how long it may take.
        clock: seconds, monotonic.
    """

    def __init__(self, stops: Iterable[str], gap: Infill, clock: Callable[[], float]) -> None:
        super().__init__(stops)
        self._gap = gap
        self._clock = clock
        self._until: float | None = None
        self._begun = (
            ""  # a line of which only white space is there yet, and the end of the one before it
        )

    def feed(self, text: str) -> str:
        """Take the next text, which may be empty, and return what is now certain to be kept."""
        if self._until is None and self._gap.within_s is not None:
            self._until = self._clock() + self._gap.within_s
        return self._lines(super().feed(text))

    def flush(self) -> str:
        """Return what was held back, at the end of the text."""
        kept = self._lines(super().flush())
        return kept if self.cut else kept + self._begun

    def _lines(self, text: str) -> str:
        """Return what is certain of a text that has no stop string."""
        text, self._begun = self._begun + text, ""
        for line in _LINE.finditer(text):
            late = self._until is not None and self._clock() > self._until
            short = len(line[1]) < self._gap.indent
            if short and line.end() == len(text) and not (late or self.stopped):
                self._begun = line[0]
                return text[: line.start()]
            if short or late:
                self.stopped = self.cut = True
                return text[: line.start()]
        return text
