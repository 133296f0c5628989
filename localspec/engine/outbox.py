"""Outbox: what the engine has to say leaves in its own time, and never holds up a pass.

A thread writes what there is as soon as the reader has taken what was before. Until then text is joined and a
progress is replaced by the one after it, so that a slow reader costs no more memory than the reply itself.
"""

import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress

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
from localspec.engine.protocol import Downloading, Failed, Loading, Measuring, Notice, ReplyEvents

_STREAMS = (Downloading, Loading, Measuring)


class _Happened:
    """What happened of a reply, while it waits to be told: texts as one, likewise arguments, and the last word on a prompt alone."""

    def __init__(self, told: ReplyEvents) -> None:
        self.id = told.id
        self._events: list[StreamEvent] = []
        self._text: int | None = None  # where the last text, or part of a call's arguments, stands
        self.add(told)

    def add(self, told: ReplyEvents) -> None:
        """Add what happened next."""
        for event in told.events:
            if isinstance(event, Text | CallDelta):
                self._add_text(event)
            elif self._events and isinstance(event, Prefilling):
                at = -1 if isinstance(self._events[-1], Prefilling) else len(self._events)
                self._events[at:] = [event]
            else:
                if isinstance(event, CallBegun | CallDone | Withheld):
                    self._text = None
                self._events.append(event)

    def notice(self) -> ReplyEvents:
        """Return it as one notice."""
        return ReplyEvents(self.id, tuple(self._events))

    def _add_text(self, event: Text | CallDelta) -> None:
        joined = None if self._text is None else _joined(self._events[self._text], event)
        if self._text is None or joined is None:
            self._text = len(self._events)
            self._events.append(event)
        else:
            self._events[self._text] = joined


class Outbox:
    """A queue with a thread that empties it.

    Args:
        write: takes a notice; raises OSError when nobody is there any more.
        flush: called when all that may leave now was written, and returns once it is gone; raises likewise.
    """

    def __init__(
        self, write: Callable[[Notice], None], flush: Callable[[], None] = lambda: None
    ) -> None:
        self._write = write
        self._flush = flush
        self._changed = threading.Condition()
        self._waiting: list[Notice | _Happened] = []
        self._closed = False
        self._failed: set[int | None] = set()
        self._thread = threading.Thread(target=self._run, daemon=True, name="localspec-outbox")
        self._thread.start()

    def put(self, notice: Notice) -> None:
        """Have a notice sent after those before it; returns at once."""
        with self._changed:
            self._add(notice)
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
            if isinstance(before, _Happened):
                if isinstance(notice, ReplyEvents) and before.id == notice.id:
                    before.add(notice)
                    return
            elif not isinstance(before, _STREAMS):
                break
            elif _is_later(notice, before):
                self._waiting[index] = notice
                return
        self._waiting.append(_Happened(notice) if isinstance(notice, ReplyEvents) else notice)

    def _run(self) -> None:
        while batch := self._next():
            try:
                for notice in batch:
                    self._send(notice)
                self._flush()
            except OSError:  # nobody reads: go on taking, for nobody
                self._write, self._flush = (lambda _: None), (lambda: None)

    def _send(self, notice: Notice) -> None:
        """Write a notice; one that is no frame ends its own request alone, and nothing of that follows."""
        number = getattr(notice, "id", None)
        try:
            if number not in self._failed:
                self._write(notice)
        except OSError:
            raise
        except Exception as error:  # whatever it is, others wait behind it
            self._failed |= {number} - {None}
            self._tell(number, error)

    def _tell(self, number: int | None, error: Exception) -> None:
        try:
            told = failure(number, error)
        except Exception:  # stderr may be gone, or the error have no text
            bug = f"this is a bug in localspec, report it ({type(error).__name__})"
            told = Failed(number, "Fault", bug)
        try:
            self._write(told)
        except OSError:
            raise
        except Exception as another:
            with suppress(Exception):  # not this thread's end: others wait behind it
                traceback.print_exception(another, file=sys.stderr)

    def _next(self) -> list[Notice]:
        """Wait until something may leave and return it; nothing at the end."""
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            batch, self._waiting = self._waiting, []
            return [each.notice() if isinstance(each, _Happened) else each for each in batch]


def _joined(before: StreamEvent, after: Text | CallDelta) -> Text | CallDelta | None:
    """Return two texts as one; None where they do not belong together."""
    match before, after:
        case Text(thinking=one), Text(thinking=other) if one == other:
            logprobs = (*before.logprobs, *after.logprobs)
            return Text(before.text + after.text, other, logprobs)
        case CallDelta(id=one), CallDelta(id=other) if one == other:
            return CallDelta(other, before.text + after.text)
    return None


def _is_later(after: Notice, before: Notice) -> bool:
    """Say whether a notice tells the same progress as another one, and more of it."""
    match before, after:
        case (Loading(), Loading()):
            return before.model == after.model
        case (Measuring(), Measuring()):
            return before.model == after.model
        case (Downloading(), Downloading()):
            return before.name == after.name
    return False
