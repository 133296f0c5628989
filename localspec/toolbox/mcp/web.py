"""Web: a server over streamable HTTP. Bounds what comes, as `pipe` does; the package bounds single events itself."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx2
from mcp.client.streamable_http import streamable_http_client

from localspec.toolbox.mcp.allowance import FLOODS, MOST_MESSAGE, Allowance, Flood
from localspec.toolbox.mcp.servers import McpServer

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

_CONNECT_S = 10.0
_SILENCE_S = 3600.0
"""How long a stream of events may be silent; calls have a time of their own."""


@asynccontextmanager
async def web(server: McpServer, gone: Callable[[str], None]) -> AsyncIterator["TransportStreams"]:
    """Yield the streams of a server's messages.

    Args:
        server: has a `url`.
        gone: is told why there is nothing more to come: the rest of a sentence about the server.
    """
    allowance = Allowance()

    async def bound(response: httpx2.Response) -> None:
        """Count what comes; what is packed could be any size."""
        if response.headers.get("content-encoding", "identity") != "identity":
            raise httpx2.DecodingError("the answer is packed, though that was not asked for")
        response.stream = _Counted(response.stream, allowance, gone)

    async with (
        httpx2.AsyncClient(
            headers={**server.headers, "accept-encoding": "identity"},
            timeout=httpx2.Timeout(_CONNECT_S, read=_SILENCE_S),
            event_hooks={"response": [bound]},
        ) as client,
        streamable_http_client(server.url, http_client=client) as streams,
    ):
        yield streams


class _Counted(httpx2.AsyncByteStream):
    """A body that may not go on for ever."""

    def __init__(
        self,
        inner: httpx2.SyncByteStream | httpx2.AsyncByteStream,
        allowance: Allowance,
        gone: Callable[[str], None],
    ) -> None:
        self._inner = inner
        self._allowance = allowance
        self._gone = gone
        self._message = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert isinstance(self._inner, httpx2.AsyncByteStream)  # noqa: S101 - of an AsyncClient
        async for piece in self._inner:
            try:
                self._count(piece)
            except Flood:
                self._gone(FLOODS)
                raise httpx2.ReadError(FLOODS) from None
            yield piece

    def _count(self, piece: bytes) -> None:
        ends = piece.count(b"\n\n")  # of events
        self._message = 0 if ends else self._message + len(piece)
        self._allowance.take(len(piece), ends)
        if self._message > MOST_MESSAGE:
            raise Flood

    async def aclose(self) -> None:
        await self._inner.aclose()  # type: ignore[union-attr]  # of an AsyncClient
