"""Outbox: what the engine has to say leaves in its own time, and never holds up a pass.

A thread writes. While it waits for a reader, or for its next turn, text is joined and a progress is
replaced by the one after it; so whoever reads slowly, or not at all, costs no more memory than the
reply itself, and gets at most ten notices a second of what comes in streams. All else leaves at once, and so
does the first text of a reply.
"""

import threading
import time
from collections.abc import Callable

from localspec.chat.events import Prefilling, Started, StreamEvent, Text
from localspec.engine.protocol import Downloading, Loading, Measuring, Notice, ReplyEvents

PACE_S = 0.1
_AT_ONCE = 64
"""Replies whose beginnings are remembered: more than are ever made at once."""
_STREAMS = (Downloading, Loading, Measuring, ReplyEvents)


class Outbox:
    """A queue with a thread that empties it.

    Args:
        write: takes a notice and returns once it is gone; raises OSError when nobody is there any more.
    """

    def __init__(self, write: Callable[[Notice], None]) -> None:
        self._write = write
        self._changed = threading.Condition()
        self._waiting: list[Notice] = []
        self._closed = False
        self._urgent = False
        self._begun: set[int] = set()
        self._next_s = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True, name="localspec-outbox")
        self._thread.start()

    def put(self, notice: Notice) -> None:
        """Have a notice sent after those before it; returns at once."""
        with self._changed:
            slept, self._urgent = not self._waiting, self._urgent or self._is_urgent(notice)
            self._add(notice)
            # Woken for every token, the thread would take the processor from the pass as often.
            if slept or self._urgent:
                self._changed.notify()

    def close(self, wait_s: float) -> None:
        """Send what waits, for `wait_s` at most."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(wait_s)

    def _add(self, notice: Notice) -> None:
        # Two models may be fetched at once, so a progress looks past those of others.
        for index in reversed(range(len(self._waiting))):
            before = self._waiting[index]
            if not isinstance(before, _STREAMS):
                break
            joined = _joined(before, notice)
            if joined is not None:
                self._waiting[index] = joined
                return
        self._waiting.append(notice)

    def _run(self) -> None:
        while batch := self._next():
            try:
                for notice in batch:
                    self._write(notice)
            except OSError:
                self._write = lambda _: None  # nobody reads: go on taking, for nobody

    def _next(self) -> list[Notice]:
        """Wait until something may leave and return it; nothing at the end."""
        with self._changed:
            while True:
                now_s = time.monotonic()
                urgent = self._closed or self._urgent
                if self._waiting and (urgent or now_s >= self._next_s):
                    self._next_s, self._urgent = now_s + PACE_S, False
                    batch, self._waiting = self._waiting, []
                    return batch
                if self._closed:
                    return []
                self._changed.wait(self._next_s - now_s if self._waiting else None)

    def _is_urgent(self, notice: Notice) -> bool:
        if not isinstance(notice, ReplyEvents):
            return not isinstance(notice, _STREAMS)
        if any(isinstance(each, Started) for each in notice.events):
            return True
        has_text = any(isinstance(each, Text) for each in notice.events)
        begins = has_text and notice.id not in self._begun
        if begins:
            self._begun = {notice.id, *sorted(self._begun)[-_AT_ONCE:]}
        return begins


def _joined(before: Notice, after: Notice) -> Notice | None:
    """Return one notice for two of the same stream, or None."""
    match before, after:
        case (ReplyEvents(), ReplyEvents()) if before.id == after.id:
            return ReplyEvents(before.id, _merged(before.events, after.events))
        case (Loading(), Loading()) if before.model == after.model:
            return after
        case (Measuring(), Measuring()) if before.model == after.model:
            return after
        case (Downloading(), Downloading()) if before.name == after.name:
            return after
    return None


def _merged(
    before: tuple[StreamEvent, ...], after: tuple[StreamEvent, ...]
) -> tuple[StreamEvent, ...]:
    """Return events in their order; neighbouring texts as one, and the last word on a prompt alone."""
    merged = list(before)
    for event in after:
        last = next((at for at, e in reversed([*enumerate(merged)]) if isinstance(e, Text)), None)
        if isinstance(event, Prefilling) and merged and isinstance(merged[-1], Prefilling):
            merged[-1] = event
        elif isinstance(event, Text) and last is not None:
            said = merged[last]
            assert isinstance(said, Text)  # noqa: S101 - it was looked for
            if said.thinking == event.thinking:
                merged[last] = Text(said.text + event.text, event.thinking)
            else:
                merged.append(event)
        else:
            merged.append(event)
    return tuple(merged)
