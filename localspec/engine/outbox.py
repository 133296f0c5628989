"""Outbox: what the engine sends leaves as it happens, and never holds up a pass.

A thread writes what there is as soon as the reader has taken what was before. Until then text is joined and a
progress is replaced by the one after it, so that a slow reader costs no more memory than the reply itself.

A reader that draws needs text a few times a second, and every part that wakes it takes processor time from the passes: see
`pace`.
"""

import threading
import time
from collections.abc import Callable

from localspec.chat.events import CallDelta, Prefilling, StreamEvent, Text
from localspec.engine.protocol import Downloading, Loading, Measuring, Notice, ReplyEvents
from localspec.engine.request_runner import failure


class Outbox:
    """A queue with a thread that empties it.

    Args:
        write: takes a notice; raises OSError when the reader is gone.
        flush: called when all that may leave now was written, and returns once it is gone; raises the same.
    """

    def __init__(
        self, write: Callable[[Notice], None], flush: Callable[[], None] = lambda: None
    ) -> None:
        self._write = write
        self._flush = flush
        self._changed = threading.Condition()
        self._waiting: dict[object, Notice] = {}
        self._events: dict[int, list[StreamEvent]] = {}  # of the replies among them
        self._breaks = 0
        self._closed = False
        self._text_every_s = self._text_at_s = 0.0
        self._failed: set[int] = set()
        self._thread = threading.Thread(target=self._run, daemon=True, name="localspec-outbox")
        self._thread.start()

    def put(self, notice: Notice) -> None:
        """Have a notice sent after those before it; returns at once."""
        with self._changed:
            if isinstance(notice, ReplyEvents):
                events = self._events.setdefault(notice.id, [])
                for event in notice.events:
                    _add(events, event)
            self._waiting[self._key(notice)] = notice
            if self._may_leave():
                self._changed.notify()

    def pace(self, text_every_s: float) -> None:
        """Let parts of a reply wait for so many seconds after a part of a text; its end waits for nothing."""
        with self._changed:
            self._text_every_s = text_every_s
            self._changed.notify()

    def _pause_s(self) -> float:
        """Return for how long parts of replies wait."""
        return max(0.0, self._text_at_s + self._text_every_s - time.monotonic())

    def _may_leave(self) -> bool:
        """Return whether something waits that may be sent now, and all else with it, in its order."""
        only_parts = all(isinstance(each, ReplyEvents) for each in self._waiting.values())
        return self._closed or (bool(self._waiting) and not (only_parts and self._pause_s()))

    def _key(self, notice: Notice) -> object:
        """Return what a notice has in common with those that may stand in its place."""
        match notice:
            case ReplyEvents(id=number):
                return ReplyEvents, number
            case Downloading(name=name) | Loading(model=name) | Measuring(model=name):
                return type(notice), name, self._breaks
        self._breaks += 1
        return self._breaks

    def close(self, wait_s: float) -> None:
        """Send what waits, for `wait_s` at most."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(wait_s)

    def _run(self) -> None:
        while batch := self._next():
            try:
                for notice in batch:
                    self._send(notice)
                self._flush()
            except OSError:  # the reader is gone: go on taking
                self._write, self._flush = (lambda _: None), (lambda: None)

    def _send(self, notice: Notice) -> None:
        """Write a notice; one that is no frame ends its own request alone, and nothing of that follows."""
        number: int | None = getattr(notice, "id", None)
        if number in self._failed:
            return
        try:
            self._write(notice)
        except OSError:
            raise
        except Exception as error:  # whatever it is, others wait behind it
            self._failed |= set() if number is None else {number}
            self._write(failure(number, error))

    def _next(self) -> list[Notice]:
        """Wait until something may leave and return it; nothing at the end."""
        with self._changed:
            while not self._may_leave():
                # Between two looks at the clock the pause may end.
                self._changed.wait(self._pause_s() or (0.001 if self._waiting else None))
            waiting, self._waiting = self._waiting, {}
            events, self._events = self._events, {}
            if any(isinstance(event, Text) for parts in events.values() for event in parts):
                self._text_at_s = time.monotonic()
        return [
            ReplyEvents(each.id, tuple(events[each.id])) if isinstance(each, ReplyEvents) else each
            for each in waiting.values()
        ]


def _add(events: list[StreamEvent], event: StreamEvent) -> None:
    """Add an event, joined with the one before it where both are parts of one text, or of one progress."""
    match events[-1] if events else None, event:
        case Text(thinking=one) as before, Text(thinking=other) if one == other:
            logprobs = (*before.logprobs, *event.logprobs)
            events[-1] = Text(before.text + event.text, other, logprobs)
        case CallDelta(id=one) as start, CallDelta(id=other) if one == other:
            events[-1] = CallDelta(other, start.text + event.text)
        case Prefilling(), Prefilling():
            events[-1] = event
        case _:
            events.append(event)
