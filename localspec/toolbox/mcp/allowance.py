"""Allowance: how much a server may say: so much at once, and so much more with every second."""

import time
from collections.abc import Callable

MOST_MESSAGE = 4 << 20
"""Bytes of a message."""
_MOST_BYTES, _BYTES_PER_S = 16 << 20, 256 << 10
_MOST_MESSAGES, _MESSAGES_PER_S = 4_000, 200
FLOODS = "floods: it said more than can be read"


class Flood(Exception):
    """A server says too much."""


class Allowance:
    """Two buckets that fill again, one of bytes and one of messages.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since_s = clock()
        self._bytes: float = _MOST_BYTES
        self._messages: float = _MOST_MESSAGES

    def take(self, size_bytes: int, messages: int = 0) -> None:
        """Take what was said out of both.

        Raises:
            Flood: it is not there.
        """
        now_s = self._clock()
        passed_s, self._since_s = now_s - self._since_s, now_s
        self._bytes = min(_MOST_BYTES, self._bytes + passed_s * _BYTES_PER_S) - size_bytes
        self._messages = min(_MOST_MESSAGES, self._messages + passed_s * _MESSAGES_PER_S) - messages
        if self._bytes < 0 or self._messages < 0:
            raise Flood
