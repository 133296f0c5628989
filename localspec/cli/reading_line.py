"""ReadingLine: how much of a long prompt is read, on a terminal, until the first word is there."""

import threading
from typing import Self

from localspec.chat.events import Event, Prefilling, Started
from localspec.cli.redrawn_line import RedrawnLine
from localspec.display import reading_text

# Whoever waits less needs no explanation.
PATIENCE_S = 1.0


class ReadingLine:
    """Watches the events of a reply. Shows nothing while the prompt is read soon, and leaves nothing behind.

    A timer draws first, since no event comes during a pass.

    Args:
        enabled: False shows nothing at all.
    """

    def __init__(self, *, enabled: bool) -> None:
        self._line = RedrawnLine(enabled=enabled)
        self._lock = threading.Lock()
        self._timer = threading.Timer(PATIENCE_S, self._show)
        self._timer.daemon = True
        self._text = ""
        self._shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def take(self, event: Event) -> None:
        """Take the next event; all but those of the prompt say that it is read."""
        match event:
            case Started():
                self._text = reading_text(0, event.prompt_tokens - event.cached_tokens)
                if self._line.drawn:
                    self._timer.start()
            case Prefilling():
                with self._lock:
                    self._text = reading_text(event.done_tokens, event.total_tokens)
                    if self._shown:
                        self._line.draw(self._text)
            case _:
                self._end()

    def _show(self) -> None:
        with self._lock:
            if self._text:
                self._shown = True
                self._line.draw(self._text)

    def _end(self) -> None:
        self._timer.cancel()
        with self._lock:
            self._text = ""
            if self._shown:
                self._shown = False
                self._line.clear()
