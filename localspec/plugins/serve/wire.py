"""HTTP on the wire, as uvicorn has it, but for bodies that break off, or that nobody waited for."""

import asyncio
from contextlib import suppress
from typing import cast

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.flow_control import service_unavailable
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_DRAINED_BYTES = 64 << 20
"""What is read of a body behind an answer; more than any that is answered has."""
DRAINED_WITHIN_S = 10.0


class Protocol(H11Protocol):
    """HTTP/1.1; a request that turns out malformed when its answer has begun ends its connection, and nothing is printed."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection; one too many gets 503, which uvicorn itself would lose with a body that nobody reads."""
        super().connection_made(transport)
        most, self.limit_concurrency = self.limit_concurrency, None
        if most is not None and len(self.connections) > most:
            self.app = Drained(cast(ASGIApp, service_unavailable))

    def send_400_response(self, msg: str) -> None:
        """Say that a request is no HTTP, where that can still be said."""
        if self.cycle is not None:  # its application must not answer once more
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        with suppress(h11.LocalProtocolError):
            super().send_400_response(msg)
        self.transport.close()

    def on_response_complete(self) -> None:
        """End a connection whose request is not whole, though its answer is: what it sends is read no further."""
        breaks_off = self.conn.their_state is h11.SEND_BODY
        super().on_response_complete()  # where a next request has come already, this begins it
        if breaks_off:
            self.transport.close()


class Drained:
    """Reads the rest of a body that was answered before it was whole.

    A client that sends all before it reads would find its connection reset, and the answer lost. The answer goes out at
    once; only its end waits.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        whole = scope["type"] != "http"

        async def receiving() -> Message:
            nonlocal whole
            message = await receive()
            whole = whole or not message.get("more_body", False)
            return message

        async def sending(message: Message) -> None:
            ends = message["type"] == "http.response.body" and not message.get("more_body", False)
            if whole or not ends:
                await send(message)
                return
            await send({**message, "more_body": True})
            await drain()
            await send({"type": "http.response.body", "body": b""})

        async def drain() -> None:
            read = 0
            with suppress(TimeoutError):
                async with asyncio.timeout(DRAINED_WITHIN_S):
                    while not whole and read <= MOST_DRAINED_BYTES:
                        read += len((await receiving()).get("body", b""))

        await self._app(scope, receiving, sending)
