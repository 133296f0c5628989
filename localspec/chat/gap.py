"""Ends what fills a gap at the end of a line: before one that is indented less, or when it took long enough. Knows no tokens."""

import re
from collections.abc import Callable, Iterable

from localspec.chat.stop_strings import Matched, StopStrings
from localspec.messages import Infill

_LINE = re.compile(r"\n([ \t]*)")


class GapEnd(StopStrings):
    """Passes text on up to a stop string, as `StopStrings` does, or up to the end of a line.

    An empty line is one that is not indented, as for llama-server, whose `n_indent` and `t_max_predict_ms` these are.

    Args:
        stops: stop strings.
        gap: says how far lines are indented, and how long it may take.
        clock: seconds, monotonic.

    Attributes:
        cut: whether it ended at a line, and not at a stop string.
    """

    def __init__(self, stops: Iterable[str], gap: Infill, clock: Callable[[], float]) -> None:
        super().__init__(stops)
        self._gap = gap
        self._clock = clock
        self._until: float | None = None
        self._begun = (
            ""  # a line of which only white space is there yet, and the end of the one before it
        )

    def feed(self, text: str) -> Matched:
        """Take the next text, which may be empty, and return what is now certain to be kept."""
        if self._until is None and self._gap.within_s is not None:
            self._until = self._clock() + self._gap.within_s
        return Matched(self._lines(super().feed(text).emit), self._stopped)

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
            if short and line.end() == len(text) and not (late or self._stopped):
                self._begun = line[0]
                return text[: line.start()]
            if short or late:
                self._stopped = self.cut = True
                return text[: line.start()]
        return text
