"""A real server on a real port, in front of an engine that tells a script."""

import asyncio
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
import uvicorn

from localspec.calls.policy import CallPolicy
from localspec.chat.request import Request
from localspec.engine.drafts import MOST_FRAME_BYTES
from localspec.engine.protocol import Load, Question
from localspec.engine.remote_engine import RemoteEngine
from localspec.options import LaunchOptions, ReplyOptions, SamplingParams
from localspec.plugins.serve.answering import Service
from localspec.plugins.serve.app import application
from localspec.plugins.serve.backend import Backend
from localspec.plugins.serve.catalogue import Catalogue
from localspec.plugins.serve.http import Guard
from localspec.plugins.serve.metrics import Metrics
from localspec.plugins.serve.model_pool import ModelPool, ServedModel
from localspec.plugins.serve.wire import Protocol
from localspec.toolbox.folder import Folder
from tests.engine.double import command
from tests.waiting import PATIENCE_S, until

GREEDY = ReplyOptions(SamplingParams(temperature=0))
FIM = {"pre": 4, "suf": 5, "mid": 2}
"""Tokens for filling in the middle; the last begins a turn, so that the script is told from its last two letters on."""


CHAT, TEXT, RESPONSES, MESSAGES, COUNT, INFILL = (
    *("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"),
    *("/v1/messages/count_tokens", "/infill"),
)
TALK, GENERATE = OLLAMA = "/api/chat", "/api/generate"


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def error_in(body: dict[str, Any]) -> dict[str, Any]:
    """Return the error in a body; Ollama's is a text."""
    error = body["error"]
    return {"message": error} if isinstance(error, str) else error


def turn(text: str) -> str:
    """Return a user's message as the script's template has it."""
    return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


def bodies(text: str, limit: int = 99) -> dict[str, dict[str, Any]]:
    return {
        CHAT: {"messages": [user(text)], "max_tokens": limit},
        TEXT: {"prompt": turn(text), "max_tokens": limit},
        RESPONSES: {"input": text, "max_output_tokens": limit},
        MESSAGES: {"messages": [user(text)], "max_tokens": limit},
        INFILL: {"input_prefix": text, "input_suffix": "b", "n_predict": limit},
        TALK: {"messages": [user(text)], "stream": False, "options": {"num_predict": limit}},
        GENERATE: {"prompt": text, "stream": False, "options": {"num_predict": limit}},
    }


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """Where a server is, and what its engine was asked so far."""

    url: str
    client: httpx.Client
    asked: list[Question]
    pool: ModelPool

    def chat(self, text: str, **more: Any) -> httpx.Response:
        return self.post(CHAT, messages=[user(text)], **more)

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self.client.post(path, json=body)

    def refuse(self, path: str, word: str, code: int = 400, **body: Any) -> dict[str, Any]:
        """Send a body that is refused in one line with a word in it; return the error."""
        answer = self.post(path, **body)
        assert answer.status_code == code, answer.text
        error = error_in(answer.json())
        assert word in error["message"]
        assert "\n" not in error["message"]
        return error

    @property
    def request(self) -> Request:
        last = self.asked[-1]
        assert isinstance(last, Request)
        return last

    def states(self) -> dict[str, str]:
        listed = self.client.get("/v1/models").json()["data"]
        return {each["id"]: each["status"]["value"] for each in listed}

    def engine(self, model: str) -> RemoteEngine:
        (entry,) = (each for each in self.pool.entries if each.model.name == model)
        return entry.backend._engine

    def under_way(self) -> int:
        count: int = self.client.get("/health").json()["under_way"]
        return count

    @contextmanager
    def asking(self, *fields: dict[str, Any]) -> Iterator[list[Future[httpx.Response]]]:
        """Ask questions beside what is done meanwhile, each under way before the next; they end with it."""
        with ThreadPoolExecutor(len(fields)) as threads:
            answers = list[Future[httpx.Response]]()
            for each in fields:
                answers.append(threads.submit(self.chat, **each))
                self.wait_until(len(answers))
            yield answers

    def wait_until(self, under_way: int) -> None:
        if not until(lambda: self.under_way() == under_way):
            raise AssertionError(f"{self.under_way()} requests are under way, not {under_way}")


@dataclass(frozen=True, slots=True, eq=False)
class Named(Catalogue):
    others: Sequence[str] = ()

    def find(self, name: str) -> ServedModel:
        if name in self.others:
            return ServedModel(name, LaunchOptions(pair=name), GREEDY)
        return Catalogue.find(self, name)

    def listed(self) -> list[str]:
        return [*self.names, *self.others]


@contextmanager
def served(
    script: Mapping[str, Any],
    *,
    most: int = 8,
    guard: Guard | None = None,
    others: Sequence[str] = (),
    keep_alive_s: float | None = None,
    max_wait_s: float | None = None,
    rules: CallPolicy | None = None,
    engine: RemoteEngine | None = None,
    scripts: Mapping[str, Mapping[str, Any]] | None = None,
    started: Sequence[str] = (),
    folder: Folder | None = None,
) -> Iterator[Served]:
    """Serve what a script says, or an engine, at most `most` requests at a time; `scripts` are of models, by name.

    There is `a-pair`, those that are `started`, and `others`, which are loaded when they are asked for.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    begun, ended = threading.Event(), threading.Event()
    servers: list[uvicorn.Server] = []
    residences: list[ModelPool] = []
    asked: list[Question] = []

    async def run() -> None:
        models = [
            ServedModel(each, LaunchOptions(pair=each), GREEDY) for each in ("a-pair", *started)
        ]
        metrics = Metrics(by_model=len(models) > 1)

        def backend_of(model: ServedModel) -> Backend:
            key = object()

            def note(number: int, question: Question) -> None:
                metrics.ask(number, question, model.name, key)
                asked.append(question)

            own = (scripts or {}).get(model.name, script)
            see = partial(metrics.see, model=model.name, engine=key)
            if model.embeds:
                real = RemoteEngine(settings=Load(embeds=True), revives=True)
                return Backend(real, model.launch, note, max_wait_s)
            client = engine or RemoteEngine(command(own), watch=see, revives=True)
            return Backend(client, model.launch, note, max_wait_s, partial(metrics.leave, key))

        pool = ModelPool(backend_of, keep_alive_s, most)
        residences.append(pool)
        try:
            await pool.start(models)
            catalogue = Named((*models,), lambda _: GREEDY, others=others)
            rule = rules or CallPolicy()
            service = Service(pool, catalogue, 0, models[0], rule, folder=folder)
            let_in = guard or Guard(hosts={"127.0.0.1", "localhost"})
            app = application(service, metrics, let_in)
            config = uvicorn.Config(
                app,
                http=Protocol,
                ws="websockets-sansio",
                ws_max_size=MOST_FRAME_BYTES,
                log_level="critical",
                lifespan="off",
                timeout_graceful_shutdown=1,
                # A client lets a connection go after five seconds: it must not be ended just when one asks again.
                timeout_keep_alive=600,
            )
            servers.append(uvicorn.Server(config))
            begun.set()
            await servers[0].serve(sockets=[listener])
        finally:
            await pool.close()
            begun.set()
            ended.set()

    thread = threading.Thread(target=asyncio.run, args=(run(),), daemon=True)
    thread.start()
    begun.wait()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        with httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
            yield Served(url, client, asked, residences[0])
    finally:
        for server in servers:
            server.should_exit = True
        ended.wait()
        thread.join()
        listener.close()
