"""Bounded: a connection whose requests have to arrive in time, and of which there are only so many.

uvicorn waits for ever for a request that does not come, or not whole. Knows no paths.
"""

import asyncio
import resource

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_WITHIN_S = 30.0
"""From when a request is waited for to its last byte; an answer may take as long as it takes."""
MOST_CONNECTIONS = min(512, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
"""One more ends the one that has been waited for longest."""
_MOMENT_S = 0.05
"""What has arrived already is read first: who asks is not taken for one that does not."""


class Bounded(H11Protocol):
    """A connection of a client; uvicorn makes them."""

    waits_since: float | None = None
    """Since when a request is waited for, by the loop's clock; None while one is answered."""
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request; where there are too many connections, the one that has waited longest ends."""
        super().connection_made(transport)
        self._look()
        if len(self.connections) > MOST_CONNECTIONS:
            self.loop.call_later(_MOMENT_S, self._make_room)

    def data_received(self, data: bytes) -> None:
        """Take in what came."""
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        super().connection_lost(exc)
        self._stop_waiting()

    def give_up(self) -> None:
        """End the connection at once."""
        self._stop_waiting()
        self.transport.abort()

    def _make_room(self) -> None:
        others = [each for each in self.connections if isinstance(each, Bounded)]
        waiting = [each for each in others if each.waits_since is not None]
        if waiting and len(self.connections) > MOST_CONNECTIONS:
            min(waiting, key=lambda each: each.waits_since or 0.0).give_up()

    def _look(self) -> None:
        """See whether a request is waited for: none is there, it is not whole, or it was answered."""
        cycle = self.cycle
        if cycle is not None and not (cycle.more_body or cycle.response_complete):
            self._stop_waiting()
        elif self.waits_since is None and not self.transport.is_closing():
            self.waits_since = self.loop.time()
            self._deadline = self.loop.call_later(REQUEST_WITHIN_S, self.give_up)

    def _stop_waiting(self) -> None:
        self.waits_since = None
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
