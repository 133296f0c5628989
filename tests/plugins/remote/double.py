"""A server that says what a test has written, byte for byte, and notes what it was sent."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Script = Callable[["Handler"], None]
MODELS = {"data": [{"id": "m", "owned_by": "llamacpp", "meta": {"n_ctx": 512}}]}


@dataclass
class Asked:
    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class Double:
    """What it answers by path, and what it was asked; `vanished` is set when a client left in the middle of an answer."""

    scripts: dict[str, Script]
    asked: list[Asked] = field(default_factory=list)
    vanished: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    def chats(self) -> list[Any]:
        return [each.body for each in self.asked if each.path == "/v1/chat/completions"]


class Handler(BaseHTTPRequestHandler):
    double: Double

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.answer(None)

    def do_POST(self) -> None:
        self.answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))

    def answer(self, body: Any) -> None:
        headers = {name.lower(): text for name, text in self.headers.items()}
        self.double.asked.append(Asked(self.path, headers, body))
        script = self.double.scripts.get(self.path, said({"error": "no such route"}, 404))
        try:
            script(self)
        except OSError:
            self.double.vanished.set()
        self.close_connection = True

    def head(self, status: int = 200, kind: str = "text/event-stream", **more: str) -> None:
        self.send_response(status)
        for name, text in {"content-type": kind, "connection": "close", **more}.items():
            self.send_header(name, text)
        self.end_headers()

    def write(self, raw: bytes) -> None:
        self.wfile.write(raw)
        self.wfile.flush()

    def cut(self) -> None:
        """Let the connection be gone at once, as when a process is killed."""
        linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.connection.close()


def said(value: Any, status: int = 200, kind: str = "application/json", **more: str) -> Script:
    """Return what answers with one body."""
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()

    def answer(handler: Handler) -> None:
        handler.head(status, kind, **more)
        handler.write(raw)

    return answer


def delta(finish: str | None = None, /, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def event(value: Any) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
USAGE = event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}})
STOP = event(delta("stop")) + USAGE + DONE


def streamed(*pieces: bytes, between_s: float = 0.0, then: Script | None = None) -> Script:
    def answer(handler: Handler) -> None:
        handler.head()
        for piece in pieces:
            handler.write(piece)
            time.sleep(between_s)
        if then is not None:
            then(handler)

    return answer


def in_turn(*scripts: Script) -> Script:
    """Return what answers by one script after the other, and by the last from then on."""
    waiting = [*scripts]

    def answer(handler: Handler) -> None:
        (waiting.pop(0) if len(waiting) > 1 else waiting[0])(handler)

    return answer


def words(*texts: str) -> bytes:
    return b"".join(event(delta(content=each)) for each in texts)


def hang(handler: Handler) -> None:
    handler.connection.settimeout(60)
    with suppress(TimeoutError):
        if not handler.connection.recv(1):
            raise ConnectionResetError


@contextmanager
def double(
    chat: Script | Sequence[Script], kind: type[Handler] = Handler, /, **scripts: Script
) -> Iterator[Double]:
    """Serve; `chat` answers chat completions, one script after the other, and `models` and others their routes."""
    chat = chat if callable(chat) else in_turn(*chat)
    routes = {"/v1/chat/completions": chat, "/v1/models": said(MODELS)}
    routes |= {f"/{name.replace('_', '/')}": script for name, script in scripts.items()}
    made = Double(routes)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (kind,), {"double": made}))
    server.daemon_threads, server.block_on_close = True, False
    made.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
