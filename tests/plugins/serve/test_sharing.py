"""Other programs of the user at a server's private socket: they get what an engine of their own would say."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from localspec.chat.events import Event, Finished, RoundDone, Started, Text
from localspec.chat.request import Request
from localspec.decoding.round import StopReason
from localspec.engine.link import ChildLink, ServerLink
from localspec.engine.protocol import (
    NOTICES,
    Cancel,
    EngineDied,
    Hello,
    Load,
    Question,
    Ready,
    encode,
)
from localspec.engine.remote_engine import RemoteEngine
from localspec.engine.running import Running
from localspec.engine.shared import connect, first_of
from localspec.engine.sync import ParallelRequests, iterate
from localspec.errors import ContextOverflow, EngineGone
from localspec.messages import Message
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions
from localspec.plugins.serve.backend import Backend
from localspec.plugins.serve.model_pool import ModelPool, ServedModel
from localspec.plugins.serve.sharing import FRAME_BYTES, SharedEngineServer, has
from tests.engine.double import command
from tests.engine.talking import Talker, hear_of
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.slow

PAIR = LaunchOptions(target="big", draft_model="small")
STORY = "Once upon a time there was a river. " * 80
TELLING = {"answers": {"story": STORY}, "otherwise": ["Hello."], "pass_s": 0.02, "parallel": 2}
"""A story of a minute, which no test hears to its end."""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localspec.engine.shared._PATIENCE_S", PATIENCE_S)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "socket"


@contextmanager
def shared(
    script: Mapping[str, Any],
    path: Path,
    most: int = 8,
    keep_alive_s: float | None = None,
    on_ask: Callable[[int, Question], None] = lambda _number, _question: None,
) -> Iterator[ModelPool]:
    started, ended = threading.Event(), threading.Event()
    residences: list[ModelPool] = []

    async def run() -> None:
        def backend_of(model: ServedModel) -> Backend:
            return Backend(RemoteEngine(command(script), revives=True), model.launch, on_ask)

        pool = ModelPool(backend_of, keep_alive_s, most)
        residences.append(pool)
        await pool.start([ServedModel("a-pair", PAIR, ReplyOptions())])
        sharing = SharedEngineServer(pool)
        server = await asyncio.start_unix_server(sharing.serve, path, limit=FRAME_BYTES)
        started.set()
        await asyncio.to_thread(ended.wait)
        server.close()
        await pool.close()

    thread = threading.Thread(target=asyncio.run, args=(run(),), daemon=True)
    thread.start()
    started.wait()
    try:
        yield residences[0]
    finally:
        ended.set()
        thread.join()


def connected(path: Path, wanted: LaunchOptions = PAIR) -> ServerLink:
    link = connect(str(path), 7, wanted)
    assert link is not None
    return link


@contextmanager
def program(path: Path, parallel: int = 1) -> Iterator[RemoteEngine]:
    with closing(RemoteEngine.of_server(connected(path), parallel)) as engine:
        yield engine


def ask(text: str, **more: Any) -> Request:
    return Request(0, (Message.user(text),), **more)


def stream(engine: RemoteEngine, text: str = "a story", **more: Any) -> Iterator[Event]:
    return iterate(engine.stream(ask(text, **more)))


def answer(engine: RemoteEngine) -> str:
    (*_, last) = stream(engine, "hello")
    assert isinstance(last, Finished)
    return last.reply.text


def nothing_runs(pool: ModelPool) -> bool:
    return until(lambda: pool.under_way == 0, 40)  # by themselves they would end later


def test_a_program_gets_every_event_and_one_that_goes_away_ends_its_request(path: Path) -> None:
    with shared(TELLING, path) as pool:
        with program(path) as engine:
            events = list(stream(engine, "hello"))
            assert {type(each) for each in events} == {Started, RoundDone, Text, Finished}
            assert "".join(each.text for each in events if isinstance(each, Text)) == "Hello."
            with pytest.raises(ContextOverflow, match=r"shorten it$") as told:
                list(stream(engine, "x" * 5000))
            assert told.value.can_grow
            story = stream(engine)
            while not isinstance(next(story), Text):
                pass
            assert pool.under_way == 1
            with program(path) as other:
                assert answer(other) == "Hello."
        assert nothing_runs(pool)


def test_many_requests_are_answered_and_those_without_room_wait(path: Path) -> None:
    answers = {f"number {n}.": f"Answer {n}." for n in range(9)}
    script = {"answers": answers, "parallel": 2}
    with shared(script, path, most=2), program(path, 5) as engine:
        requests = (Request(n, ask(f"number {n}.").messages) for n in range(9))
        replies = {each.key: each.reply for each in ParallelRequests(engine).outcomes(requests)}
        texts = {key: reply and reply.text for key, reply in replies.items()}
        assert texts == {n: f"Answer {n}." for n in range(9)}
        (failed,) = ParallelRequests(engine).outcomes(iter([ask("x" * 5000)]))
        assert isinstance(failed.error, ContextOverflow)


def test_what_waits_for_room_in_a_server_does_not_outlast_a_stop(path: Path) -> None:
    with shared(TELLING, path, most=1) as pool, program(path) as other, program(path, 3) as engine:
        next(story := stream(other))
        threading.Timer(0.3, engine.stop).start()
        assert (
            list(
                ParallelRequests(engine).outcomes(
                    Request(n, ask("a story").messages) for n in range(9)
                )
            )
            == []
        )
        assert pool.under_way == 1
        story.close()  # type: ignore[attr-defined]


def test_a_server_that_stops_tells_what_waits_before_it_writes_down_what_it_evaluated(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, end = threading.Event(), ChildLink.end

    def write_first(link: ChildLink, wait_s: float) -> None:
        assert told.wait(PATIENCE_S), "it is told meanwhile"
        end(link, wait_s)

    monkeypatch.setattr(ChildLink, "end", write_first)
    with shared(TELLING, path):
        engine = RemoteEngine.of_server(connected(path))
        story = stream(engine)
        next(story)

        def hear() -> None:
            with suppress(EngineGone):
                list(story)
            told.set()

        hearing = threading.Thread(target=hear)
        hearing.start()
    hearing.join()
    engine.close()


def test_the_end_of_a_server_or_its_engine_ends_the_answer(path: Path, tmp_path: Path) -> None:
    with shared(TELLING, path):
        engine = RemoteEngine.of_server(connected(path))
        next(story := stream(engine))
    with pytest.raises(EngineGone):
        list(story)
    engine.close()
    assert connect(str(path), 7, PAIR) is None  # the socket is still there, or is gone
    other = tmp_path / "other"
    mortal = {**TELLING, "death": {"on": "token", "at": 20}}
    with (
        shared(mortal, other),
        program(other) as engine,
        pytest.raises(EngineGone, match="SIGKILL"),
    ):
        list(stream(engine))


def test_a_chats_engine_is_a_servers_or_its_own(path: Path, tmp_path: Path) -> None:
    with shared({"otherwise": ["The server."]}, path):
        own = command({"otherwise": ["Its own."]})
        engine = Talker(own, find=lambda wanted: connect(str(path), 7, wanted))
        engine.start()
        assert engine.pid is None
        for wanted, text in ((PAIR, "The server."), (LaunchOptions("other"), "Its own.")) * 2:
            engine.load(wanted)
            ready = hear_of(engine, Ready)[-1]
            assert isinstance(ready, Ready)
            assert ("--own" in "".join(ready.notes)) is (text == "The server.")
            engine.ask([Message.user("hello")])
            done = hear_of(engine, Finished)[-1]
            assert isinstance(done, Finished)
            assert done.reply.text == text
        engine.load(PAIR)
        assert isinstance(hear_of(engine, Ready)[-1], Ready)
    assert isinstance(hear_of(engine)[-1], EngineDied)
    engine.restart()
    assert isinstance(hear_of(engine, Ready)[-1], Ready)
    engine.close()


LARGE, SMALL = (replace(PAIR, load=LoadOptions(n_ctx=n)) for n in (8192, 512))


def test_only_what_answers_alike_is_shared() -> None:
    for loaded, n_ctx, wanted, alike in [
        (PAIR, 2000, PAIR, True),
        (PAIR, 2000, replace(PAIR, draft="off", draft_model=None), True),
        (PAIR, 2000, replace(PAIR, offline=True, fit=False), True),
        (PAIR, 2000, replace(PAIR, load=LoadOptions(n_ctx=2000)), True),
        (PAIR, 2000, replace(PAIR, draft="lookup"), False),
        (PAIR, 2000, replace(PAIR, target="other"), False),
        (PAIR, 2000, replace(PAIR, draft_model="other"), False),
        (PAIR, 2000, replace(PAIR, exact=True), False),
        (PAIR, 2000, replace(PAIR, load=LoadOptions(n_ctx=1000)), False),
        (PAIR, 2000, replace(PAIR, load=LoadOptions(threads=3)), False),
        # A context of a size that was set is shared where it is no smaller than the usual.
        (LARGE, 8192, PAIR, True),
        (SMALL, 512, PAIR, False),
        (SMALL, 512, SMALL, True),
    ]:
        assert has(loaded, n_ctx, wanted) is alike


def test_nonsense_on_the_socket_ends_no_more_than_its_own_connection(path: Path) -> None:
    half = b'{"v": 6, "type": "Request"'
    with shared({"otherwise": ["Hello."]}, path):
        for nonsense in (b"\n", b"{}\n", b"\xff\xfe\n", half, b"[" * 9999 + b"\n"):
            with socket.socket(socket.AF_UNIX) as stranger:
                stranger.connect(str(path))
                stranger.sendall(nonsense)
        with program(path) as engine:
            assert answer(engine) == "Hello."


def test_every_program_is_a_client_of_its_own_and_drafts_as_it_wants(path: Path) -> None:
    questions = list[Question]()
    plain = replace(PAIR, draft="off")
    with shared(TELLING, path, on_ask=lambda _, each: questions.append(each)), ExitStack() as stack:
        programs = [
            stack.enter_context(closing(RemoteEngine.of_server(connected(path, each))))
            for each in (PAIR, PAIR, plain)
        ]
        for engine in (*programs, programs[0]):
            answer(engine)
        list(stream(programs[0], "hello", draft="off"))
    requests = [each for each in questions if isinstance(each, Request)]
    names = [each.client for each in requests]
    assert len({*names[:3]}) == 3, "none waits behind all requests of another program"
    assert names[3] == names[0]
    assert [each.draft for each in requests] == [None, None, "off", None, "off"]


def test_a_cancel_before_the_beginning_ends_it_and_numbers_are_ones_own(path: Path) -> None:
    with shared(TELLING, path) as pool:
        with program(path) as other:  # the engine's numbers go on
            next(stream(other))
        assert nothing_runs(pool)
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(PATIENCE_S)
            client.connect(str(path))
            commands = (Load(PAIR), msgspec.structs.replace(ask("a story"), id=1), Cancel(1))
            client.sendall(b"".join(encode(each) for each in commands))
            with client.makefile("rb") as lines:
                notices = [NOTICES.decode(lines.readline()) for _ in range(2)]
                assert [type(each) for each in notices] == [Hello, Ready]
                while not isinstance(last := NOTICES.decode(lines.readline()), Finished):
                    pass
    assert (last.id, last.reply.stop_reason) == (1, StopReason.CANCELLED)
    assert len(last.reply.text) < len(STORY)


def test_a_model_that_was_let_go_meanwhile_is_loaded_again(path: Path) -> None:
    with shared({"otherwise": ["Hello."]}, path, keep_alive_s=0.05) as pool:
        with program(path) as engine:
            for _ in range(2):
                assert answer(engine) == "Hello."
                assert until(lambda: not pool.loaded)
        # Also for a program that comes later, but not to say that something else is loaded.
        assert connect(str(path), 7, LaunchOptions("other")) is None
        again = connected(path)
        assert "loads the model again" in "".join(again.ready.notes)
        with closing(RemoteEngine.of_server(again)) as engine:
            assert answer(engine) == "Hello."


def test_a_server_that_rests_comes_after_one_that_has_the_model(tmp_path: Path) -> None:
    old, young = tmp_path / "old", tmp_path / "young"
    script = {"otherwise": ["Hello."]}
    with shared(script, old, keep_alive_s=0.01) as rests:
        assert until(lambda: not rests.loaded)
        running = [Running(n, "a-pair", (), n, str(path)) for n, path in ((1, old), (2, young))]
        with shared(script, young):
            for order in (running, running[::-1]):
                chosen = first_of(order, PAIR)
                assert chosen is not None
                assert chosen.pid == 2
                chosen.end(0)
        alone = first_of([running[1], running[0], running[0]], PAIR)
        assert alone is not None
        assert (alone.pid, alone.unloaded) == (1, True)
        with closing(RemoteEngine.of_server(alone)) as engine:
            assert answer(engine) == "Hello."
    assert first_of(running, PAIR) is None
