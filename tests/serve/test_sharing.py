"""Other programs of the user at a server's private socket: they get what an engine of their own would say."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from localspec.chat.events import Finished, RoundDone, Started, Text
from localspec.chat.request import Request
from localspec.decoding.round import StopReason
from localspec.engine.engine import EngineGone, RemoteEngine, iterate
from localspec.engine.link import ChildLink, ServerLink
from localspec.engine.protocol import (
    NOTICES,
    Cancel,
    EngineDied,
    Hello,
    Load,
    Question,
    Ready,
    StateLeft,
    encode,
)
from localspec.engine.running import Running
from localspec.engine.shared import connect
from localspec.errors import ContextOverflow
from localspec.launch.engine import first_of
from localspec.messages import Message
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions
from localspec.serve.backend import Backend
from localspec.serve.residence import Residence, ServedModel
from localspec.serve.sharing import FRAME_BYTES, Sharing, has
from tests.engine.double import command
from tests.engine.talking import Talker, hear_of
from tests.waiting import PATIENCE_S, until

PAIR = LaunchOptions(target="big", draft_model="small")
STORY = "Once upon a time there was a river. " * 80
TELLING = {"otherwise": [STORY], "pass_s": 0.02}
"""A story of a minute, which no test hears to its end."""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a server that is busy answer late; who says nothing at all is left alone in other tests."""
    monkeypatch.setattr("localspec.engine.shared._PATIENCE_S", PATIENCE_S)


@contextmanager
def shared(
    script: Mapping[str, Any],
    path: Path,
    most: int = 8,
    keep_alive_s: float | None = None,
    on_ask: Callable[[int, Question], None] = lambda _number, _asked: None,
) -> Iterator[Backend]:
    """Share what a script says at a socket."""
    started, ended = threading.Event(), threading.Event()
    found: list[tuple[Backend, asyncio.AbstractEventLoop]] = []

    async def run() -> None:
        backend = Backend(RemoteEngine(command(script), revives=True), PAIR, most, on_ask)
        found.append((backend, asyncio.get_running_loop()))
        await backend.start()
        model = ServedModel("a-pair", PAIR, ReplyOptions())
        residence = Residence(backend, model, keep_alive_s, most)
        sharing = Sharing(backend, residence)
        server = await asyncio.start_unix_server(sharing.serve, path, limit=FRAME_BYTES)
        started.set()
        await asyncio.to_thread(ended.wait)
        server.close()
        await backend.close()

    thread = threading.Thread(target=asyncio.run, args=(run(),), daemon=True)
    thread.start()
    started.wait()
    try:
        yield found[0][0]
    finally:
        ended.set()
        thread.join()


def connected(path: Path, wanted: LaunchOptions = PAIR) -> ServerLink:
    engine = connect(str(path), 7, wanted)
    assert engine is not None
    return engine


def ask(text: str, **more: Any) -> Request:
    return Request(0, (Message.user(text),), **more)


def test_a_program_gets_every_event_and_one_that_goes_away_ends_its_request(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    script = {"answers": {"story": STORY}, "otherwise": ["Hello."], "pass_s": 0.02, "parallel": 2}
    with shared(script, path) as backend:
        with closing(RemoteEngine.of_server(connected(path))) as assistant:
            events = list(iterate(assistant.stream(ask("hello"))))
            kinds = {type(each) for each in events}
            assert kinds == {Started, RoundDone, Text, Finished}
            assert "".join(each.text for each in events if isinstance(each, Text)) == "Hello."
            last = events[-1]
            assert isinstance(last, Finished)
            assert last.reply.text == "Hello."
            long = Request(0, (Message.user("x" * 5000),))
            with pytest.raises(ContextOverflow, match="--ctx"):
                list(iterate(assistant.stream(long)))
            stream = iterate(assistant.stream(ask("a story")))
            while not isinstance(next(stream), Text):
                pass
            assert backend.under_way == 1
            with closing(RemoteEngine.of_server(connected(path))) as other:
                assert list(iterate(other.stream(ask("hello"))))[-1:] != []
        wait_until_nothing_runs(backend)


def wait_until_nothing_runs(backend: Backend) -> None:
    soon_s = 40  # by themselves they would end later
    assert until(lambda: backend.under_way == 0, soon_s), f"{backend.under_way} requests still run"


def test_who_is_told_to_stop_gets_what_there_is(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with shared(TELLING, path):
        seen: list[Text] = []
        with closing(RemoteEngine.of_server(connected(path))) as assistant:
            for event in iterate(assistant.stream(ask("a story"))):
                if isinstance(event, Text):
                    seen.append(event)
                    assistant.stop()
                if isinstance(event, Finished):
                    assert event.reply.stop_reason is StopReason.CANCELLED
                    assert STORY.startswith(event.reply.text)
                    assert event.reply.text == "".join(each.text for each in seen)


def test_many_requests_are_answered_and_those_without_room_wait(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    answers = {f"number {n}.": f"Answer {n}." for n in range(9)}
    with (
        shared({"answers": answers, "parallel": 2}, path, most=2),
        closing(RemoteEngine.of_server(connected(path), 5)) as assistant,
    ):
        requests = (Request(n, ask(f"number {n}.").messages) for n in range(9))
        found = {each.key: each.reply for each in assistant.answer(requests)}
        assert {key: reply and reply.text for key, reply in found.items()} == {
            n: f"Answer {n}." for n in range(9)
        }
        broken = ask("x" * 5000)
        (failed,) = assistant.answer(iter([broken]))
        assert isinstance(failed.error, ContextOverflow)


def test_what_waits_for_room_in_a_server_does_not_outlast_a_stop(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with (
        shared({**TELLING, "parallel": 2}, path, most=1) as backend,
        closing(RemoteEngine.of_server(connected(path))) as other,
        closing(RemoteEngine.of_server(connected(path), 3)) as assistant,
    ):
        story = iterate(other.stream(ask("a story")))
        next(story)
        stop = threading.Timer(0.3, assistant.stop)
        stop.start()
        requests = (Request(n, ask("a story").messages) for n in range(9))
        assert list(assistant.answer(requests)) == []
        assert backend.under_way == 1


def test_a_server_that_stops_tells_what_waits_before_it_writes_down_what_it_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, told, end = tmp_path / "socket", threading.Event(), ChildLink.end

    def write_first(link: ChildLink, wait_s: float) -> None:
        assert told.wait(PATIENCE_S), "it is told meanwhile"
        end(link, wait_s)

    monkeypatch.setattr(ChildLink, "end", write_first)
    with shared(TELLING, path):
        assistant = RemoteEngine.of_server(connected(path))
        stream = iterate(assistant.stream(ask("a story")))
        next(stream)

        def hear() -> None:
            with suppress(EngineGone):
                list(stream)
            told.set()

        hearing = threading.Thread(target=hear)
        hearing.start()
    hearing.join()
    assistant.close()


def test_a_server_that_goes_away_is_told_and_its_engines_death_too(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with shared(TELLING, path):
        assistant = RemoteEngine.of_server(connected(path))
        stream = iterate(assistant.stream(ask("a story")))
        next(stream)
    with pytest.raises(EngineGone):
        list(stream)
    assistant.close()
    assert connect(str(path), 7, PAIR) is None  # the socket is still there, or is gone
    dying = {**TELLING, "death": {"on": "token", "at": 20}}
    path = tmp_path / "other"
    with shared(dying, path), closing(RemoteEngine.of_server(connected(path))) as other:
        stream = iterate(other.stream(ask("a story")))
        with pytest.raises(EngineGone, match="SIGKILL"):
            list(stream)


def test_a_chats_engine_is_a_servers_or_its_own(tmp_path: Path) -> None:
    path = tmp_path / "socket"

    def find(wanted: LaunchOptions) -> ServerLink | None:
        return connect(str(path), 7, wanted)

    with shared({"otherwise": ["The server."]}, path):
        engine = Talker(command({"otherwise": ["Its own."]}), find=find)
        engine.start()
        assert engine.pid is None
        for wanted, answer in ((PAIR, "The server."), (LaunchOptions("other"), "Its own.")) * 2:
            engine.load(wanted)
            ready = hear_of(engine, Ready)[-1]
            assert isinstance(ready, Ready)
            assert ("--own" in "".join(ready.notes)) is (answer == "The server.")
            engine.ask([Message.user("hello")])
            done = hear_of(engine, Finished)[-1]
            assert isinstance(done, Finished)
            assert done.reply.text == answer
        engine.load(PAIR)
        engine.save_state(str(tmp_path / "state"))
        assert isinstance(hear_of(engine, StateLeft)[-1], StateLeft)
    assert isinstance(hear_of(engine)[-1], EngineDied)
    engine.restart()
    assert isinstance(hear_of(engine, Ready)[-1], Ready)
    engine.close()


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (PAIR, True),
        (replace(PAIR, draft="off", draft_model=None), True),
        (replace(PAIR, offline=True, fit=False), True),
        (replace(PAIR, load=LoadOptions(n_ctx=2000)), True),
        (replace(PAIR, draft="lookup"), False),
        (replace(PAIR, target="other"), False),
        (replace(PAIR, draft_model="other"), False),
        (replace(PAIR, exact=True), False),
        (replace(PAIR, load=LoadOptions(n_ctx=1000)), False),
        (replace(PAIR, load=LoadOptions(threads=3)), False),
    ],
)
def test_only_what_answers_alike_is_shared(wanted: LaunchOptions, found: bool) -> None:
    assert has(PAIR, 2000, wanted) is found


def test_a_context_that_was_asked_for_is_shared_where_it_is_no_smaller_than_the_usual() -> None:
    large = replace(PAIR, load=LoadOptions(n_ctx=8192))
    small = replace(PAIR, load=LoadOptions(n_ctx=512))
    assert has(large, 8192, PAIR)
    assert not has(small, 512, PAIR)
    assert has(small, 512, small)


def test_nonsense_on_the_socket_ends_no_more_than_its_own_connection(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with shared({"otherwise": ["Hello."]}, path):
        for nonsense in (
            b"\n",
            b"{}\n",
            b"\xff\xfe\n",
            b'{"v": 6, "type": "Request"',
            b"[" * 9999 + b"\n",
        ):
            with socket.socket(socket.AF_UNIX) as stranger:
                stranger.connect(str(path))
                stranger.sendall(nonsense)
        with closing(RemoteEngine.of_server(connected(path))) as assistant:
            assert (
                len(list(iterate(assistant.stream(ask("hello", options=ReplyOptions(seed=1)))))) > 1
            )


def test_every_program_is_a_client_of_its_own_and_drafts_as_it_wants(tmp_path: Path) -> None:
    path, asked = tmp_path / "socket", list[Question]()
    with shared({"otherwise": ["Hello."]}, path, on_ask=lambda _, each: asked.append(each)):
        programs = [RemoteEngine.of_server(connected(path)) for _ in range(2)]
        programs.append(RemoteEngine.of_server(connected(path, replace(PAIR, draft="off"))))
        for each in (*programs, programs[0]):
            list(iterate(each.stream(ask("hello"))))
        list(iterate(programs[0].stream(ask("hello", draft="off"))))
        for each in programs:
            each.close()
    asks = [each for each in asked if isinstance(each, Request)]
    names = [each.client for each in asks]
    assert len({*names[:3]}) == 3, "nobody waits behind all that another program asked"
    assert names[3] == names[0]
    assert [each.draft for each in asks] == [None, None, "off", None, "off"]


def test_what_is_cancelled_before_it_began_ends_and_numbers_are_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with shared({**TELLING, "parallel": 2}, path) as backend:
        with closing(
            RemoteEngine.of_server(connected(path))
        ) as other:  # the engine's numbers go on
            next(iterate(other.stream(ask("a story"))))
        wait_until_nothing_runs(backend)
        with socket.socket(socket.AF_UNIX) as program:
            program.settimeout(PATIENCE_S)
            program.connect(str(path))
            said = (Load(PAIR), msgspec.structs.replace(ask("a story"), id=1), Cancel(1))
            program.sendall(b"".join(encode(each) for each in said))
            with program.makefile("rb") as stream:
                told = [NOTICES.decode(stream.readline()) for _ in range(2)]
                assert [type(each) for each in told] == [Hello, Ready]
                while not isinstance(last := NOTICES.decode(stream.readline()), Finished):
                    pass
        assert last.id == 1
        assert last.reply.stop_reason is StopReason.CANCELLED
        assert len(last.reply.text) < len(STORY)


def test_a_model_that_was_let_go_meanwhile_is_loaded_again(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with shared({"otherwise": ["Hello."]}, path, keep_alive_s=0.05) as backend:
        with closing(RemoteEngine.of_server(connected(path))) as assistant:
            for _ in range(2):
                (*_, last) = iterate(assistant.stream(ask("hello")))
                assert isinstance(last, Finished)
                assert last.reply.text == "Hello."
                assert until(lambda: backend.ready is None)
        # Also for a program that comes later; what it would not answer alike, it does not load for anybody.
        assert connect(str(path), 7, LaunchOptions("other")) is None
        again = connected(path)
        assert "loads the model again" in "".join(again.ready.notes)
        with closing(RemoteEngine.of_server(again)) as assistant:
            (*_, last) = iterate(assistant.stream(ask("hello")))
            assert isinstance(last, Finished)
            assert last.reply.text == "Hello."


def test_a_server_that_rests_is_asked_after_one_that_has_the_model(tmp_path: Path) -> None:
    old, young = tmp_path / "old", tmp_path / "young"
    script = {"otherwise": ["Hello."]}
    with shared(script, old, keep_alive_s=0.01) as rests:
        assert until(lambda: rests.ready is None)
        running = [Running(n, "a-pair", (), n, str(path)) for n, path in ((1, old), (2, young))]
        with shared(script, young):
            for order in (running, running[::-1]):
                chosen = first_of(order, PAIR)
                assert chosen is not None
                assert chosen.pid == 2
                chosen.end(0)
        alone = first_of([running[1], running[0], running[0]], PAIR)
        assert alone is not None
        assert (alone.pid, alone.rests) == (1, True)
        with closing(RemoteEngine.of_server(alone)) as assistant:
            (*_, last) = iterate(assistant.stream(ask("hello")))
            assert isinstance(last, Finished)
            assert last.reply.text == "Hello."
    assert first_of(running, PAIR) is None
