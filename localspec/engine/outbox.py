"""Outbox: what the engine sends leaves as it happens, and never holds up a pass.

A thread writes what there is as soon as the reader has taken what was before. Until then text is joined and a
progress is replaced by the one after it, so that a slow reader costs no more memory than the reply itself.
"""

import threading
from collections.abc import Callable

from localspec.chat.events import (
    CallBegun,
    CallDelta,
    CallDone,
    Prefilling,
    StreamEvent,
    Text,
    Withheld,
)
from localspec.engine.answering import failure
from localspec.engine.protocol import Downloading, Loading, Measuring, Notice, ReplyEvents


class _Joined:
    """Events of a reply that wait: texts as one, arguments of a call as one, and of the progress of a prompt the last."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.events: list[StreamEvent] = []
        self._text: int | None = None  # where the last text, or part of a call's arguments, stands

    def add(self, event: StreamEvent) -> None:
        """Add what happened next."""
        match event:
            case Text() | CallDelta():
                joined = None if self._text is None else _join(self.events[self._text], event)
                if self._text is not None and joined is not None:
                    self.events[self._text] = joined
                    return
                self._text = len(self.events)
            case Prefilling() if self.events and isinstance(self.events[-1], Prefilling):
                self.events.pop()
            case CallBegun() | CallDone() | Withheld():
                self._text = None
            case _:
                pass
        self.events.append(event)


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
        self._waiting: dict[object, Notice | _Joined] = {}
        self._breaks = 0
        self._closed = False
        self._failed: set[int] = set()
        self._thread = threading.Thread(target=self._run, daemon=True, name="localspec-outbox")
        self._thread.start()

    def put(self, notice: Notice) -> None:
        """Have a notice sent after those before it; returns at once."""
        with self._changed:
            if isinstance(notice, ReplyEvents):
                joined = self._waiting.setdefault((self._breaks, notice.id), _Joined(notice.id))
                assert isinstance(joined, _Joined)  # noqa: S101 - such a key has nothing else
                for event in notice.events:
                    joined.add(event)
            else:
                self._waiting[self._key(notice)] = notice
            self._changed.notify()

    def _key(self, notice: Notice) -> object:
        """Return what a notice has in common with later ones, which take its place as long as nothing else comes between."""
        match notice:
            case Downloading(name=name) | Loading(model=name) | Measuring(model=name):
                return self._breaks, type(notice), name
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
            while not self._waiting and not self._closed:
                self._changed.wait()
            batch, self._waiting = self._waiting, {}
        return [
            ReplyEvents(each.number, tuple(each.events)) if isinstance(each, _Joined) else each
            for each in batch.values()
        ]


def _join(before: StreamEvent, after: Text | CallDelta) -> Text | CallDelta | None:
    """Return two texts as one; None where they do not belong together."""
    match before, after:
        case Text(thinking=one), Text(thinking=other) if one == other:
            logprobs = (*before.logprobs, *after.logprobs)
            return Text(before.text + after.text, other, logprobs)
        case CallDelta(id=one), CallDelta(id=other) if one == other:
            return CallDelta(other, before.text + after.text)
    return None
