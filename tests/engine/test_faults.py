"""What goes wrong at either end of the pipe: deaths, orphans, nonsense, readers that do not read."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import msgspec
import pytest

from localspec.chat.request import Request
from localspec.cli.progress import ProgressLine
from localspec.engine.link import ChildLink, cause_of_death
from localspec.engine.protocol import (
    MAX_FRAME_BYTES,
    VERSION,
    Bye,
    Count,
    EngineDied,
    Hello,
    Load,
    Ready,
    encode,
)
from localspec.engine.remote_engine import RemoteEngine
from localspec.errors import EngineGone
from localspec.messages import Message
from localspec.options import LaunchOptions, ReplyOptions
from localspec.plugins.serve import command as serving
from localspec.plugins.serve.metrics import Metrics
from localspec.plugins.serve.model_pool import ModelPool, ServedModel
from tests import warm
from tests.engine.double import command
from tests.engine.talking import GREEDY, Talker, double, hear_all, hear_last
from tests.support.processes import alive
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.slow

HELLO = [Message.user("hello")]
LOAD = encode(Load(LaunchOptions(pair="a-pair")))

OUT_OF_MEMORY = "was killed (SIGKILL), most likely because memory ran out"


def died(engine: Talker) -> str:
    """Return why it died, and see that it is said once, in one line."""
    last = hear_last(engine, EngineDied)
    assert "\n" not in last.reason
    time.sleep(0.1)
    assert engine.drain() == []
    assert not engine.alive
    return last.reason


@pytest.mark.parametrize(
    ("on", "how", "words"),
    [
        ("start", "SIGKILL", OUT_OF_MEMORY),
        ("fetch", 3, "ended by itself (exit code 3)"),
        ("load", "SIGABRT", "gave up (SIGABRT)"),
        ("prefill", "SIGTERM", "was terminated (SIGTERM)"),
        ("token", "SIGSEGV", "crashed (SIGSEGV)"),
    ],
)
def test_a_death_at_any_stage_is_reported_with_its_last_words(
    on: str, how: str | int, words: str
) -> None:
    stderr = "GGML_ASSERT: " + "x" * 9000 + "\nno room\x1b[31m left\n\n"
    script = {"otherwise": ["x" * 100], "death": {"on": on, "how": how}, "stderr": stderr}
    with double(script, load=False) as engine:
        engine.load(LaunchOptions(pair="a-pair"))
        engine.ask("x" * 1000)
        assert died(engine).endswith(f"{words}; its last words: no room?[31m left")
    assert cause_of_death(-250, b"") == "the engine was ended by signal 250"


def test_after_a_death_it_is_restarted_with_what_was_loaded_and_not_with_its_cause() -> None:
    with double({"deadly": "too-large"}) as engine:
        assert engine.pid is not None
        os.kill(engine.pid, signal.SIGKILL)
        assert OUT_OF_MEMORY in died(engine)
        engine.ask("hello")  # to nobody: no error, no message
        engine.restart()
        assert hear_last(engine, Ready).target == "a-pair"
        engine.load(LaunchOptions(pair="too-large"))
        assert OUT_OF_MEMORY in died(engine)
        engine.restart()
        assert hear_last(engine, Ready).target == "a-pair"
        assert engine.reply("hello").done


def test_who_asks_or_loads_just_when_it_died_is_told() -> None:
    async def work(engine: RemoteEngine) -> None:
        engine.follow(asyncio.get_running_loop())
        engine.load(LaunchOptions(pair="a-pair"))
        await engine.loaded()
        assert engine._link is not None
        engine._link.ended = True  # the pipe has ended, and the new process is not there yet
        with pytest.raises(EngineGone, match="being started again: try later"):
            await engine.count([Message.user("x")])
        engine._link.ended = False
        engine._deaths.append(time.monotonic())  # it died, and could not be loaded again
        engine.load(LaunchOptions(pair="too-large"))
        with pytest.raises(EngineGone, match="SIGKILL"):
            await engine.loaded()

    with closing(RemoteEngine(command({"deadly": "too-large"}), revives=True)) as engine:
        asyncio.run(work(engine))


def test_it_has_a_session_of_its_own_and_one_that_hangs_is_restarted_by_force() -> None:
    with double() as engine:
        before = engine.pid
        assert before is not None
        assert os.getsid(before) == before, "the terminal cannot reach it"
        os.kill(before, signal.SIGINT)  # and where it does, nothing happens
        assert engine.reply(HELLO).done
        os.kill(before, signal.SIGSTOP)
        engine.ask("x" * 1_000_000)  # more than a pipe holds: nobody waits
        engine.restart()
        hear_last(engine, Ready)
        with pytest.raises(ProcessLookupError):
            os.kill(before, 0)


PARENT = """
import os, sys, time
from localspec.chat.events import Prefilling
from localspec.engine.protocol import Ready
from localspec.options import LaunchOptions
from tests.engine.double import command
from tests.engine.talking import Talker, hear_event, hear_of

engine = Talker(command({"chunk_s": 0.05, "load_s": float(sys.argv[2])}))
engine.load(LaunchOptions(pair="a-pair"))
if sys.argv[1] == "prefill":
    hear_of(engine, Ready)
    engine.ask("x" * 3900)
    hear_event(engine, Prefilling)
if sys.argv[3] == "heir":
    # A child that keeps all of our pipes open, as a shell that was forked would.
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
print(engine.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.first(1)
@pytest.mark.parametrize(
    ("stage", "load_s", "heir"),
    [("prefill", "0", ""), ("load", "30", ""), ("prefill", "0", "heir")],
)
def test_no_orphan_is_left_when_its_client_is_killed(stage: str, load_s: str, heir: str) -> None:
    line = [sys.executable, "-W", "ignore", "-c", PARENT, stage, load_s, heir]
    with subprocess.Popen(line, stdout=subprocess.PIPE, start_new_session=True) as parent:
        assert parent.stdout is not None
        engine = int(parent.stdout.readline())
        assert alive(engine)
        parent.kill()
        parent.wait()
        try:
            assert until(lambda: not alive(engine))
        finally:
            if heir:
                os.killpg(parent.pid, signal.SIGKILL)


@contextmanager
def raw(script: dict[str, Any] | None = None) -> Iterator[warm.Process]:
    process = warm.Process("tests.engine.double", (json.dumps(script or {}),), os.environ)
    with process.stdin, process.stdout, process.stderr:
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def say(process: Any, *lines: bytes) -> None:
    process.stdin.write(b"".join(lines))
    process.stdin.flush()


def reply(process: Any, kind: str) -> dict[str, Any]:
    """Return the next message of a kind, as it came over the pipe."""
    while line := process.stdout.readline():
        document: dict[str, Any] = json.loads(line)
        assert document["v"] == VERSION
        if document["type"] == kind:
            return document
    raise AssertionError("the pipe was closed")


@pytest.mark.first(2)
@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"hello\n", "a frame is wrong: JSON is malformed"),
        (b'{"v": 2, "type": "Bye"}\n', f"a frame is of protocol 2, this side speaks {VERSION}"),
        (b'{"v": %d, "type": "Dance"}\n' % VERSION, "Invalid value 'Dance'"),
        (2 * MAX_FRAME_BYTES + 3, f"more than {MAX_FRAME_BYTES} bytes"),
    ],
)
def test_nonsense_gets_one_clear_answer_and_costs_nothing(line: bytes | int, told: str) -> None:
    line = b"x" * line + b"\n" if isinstance(line, int) else line
    with raw() as process:
        say(process, line, LOAD, encode(Request(1, tuple(HELLO), GREEDY)))
        failed = reply(process, "Failed")
        assert (failed["id"], failed["kind"]) == (None, "FrameError")
        assert told in failed["reason"]
        assert reply(process, "Finished")["message"]["parts"][0]["text"] == "Hello **world**."


@pytest.mark.slow
def test_a_reader_that_does_not_read_stops_nothing() -> None:
    with raw({"otherwise": ["x" * 1500]}) as process:
        say(process, LOAD)
        for number in range(1, 6):  # far more than the pipe holds, tokens and rounds included
            say(process, encode(Request(number, tuple(HELLO), GREEDY, most_cached=0)))
        say(process, encode(Count(6, tuple(HELLO))))
        time.sleep(1.0)
        for number in range(1, 6):  # and nothing is lost
            finished = reply(process, "Finished")
            assert (finished["id"], finished["message"]["parts"][0]["text"]) == (number, "x" * 1500)


def test_neither_a_stray_print_nor_half_a_frame_is_one() -> None:
    start = "import sys, tests.engine.double as d, tests.engine.scripted as s, os;"
    stray = "d.name_of = lambda r: (print('stray'), os.system('echo stray'), r.pair)[2]; d.main()"
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", start + stray, "{}"], **pipes) as process:
        say(process, LOAD, encode(Request(1, tuple(HELLO), GREEDY)))
        assert reply(process, "Finished")["id"] == 1  # all before it were frames, too
        assert process.communicate(LOAD[:-5])[0] == b""
        assert process.returncode in {0, 1}


def saying(line: str) -> str:
    return f"import time; print({line!r}, flush=True); time.sleep(60)"


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (saying("hello"), "an invalid message: a frame is wrong: JSON is malformed"),
        (saying('{"v": 99, "type": "Hello"}'), f"protocol 99, this side speaks {VERSION}"),
        (saying(f'{{"v": {VERSION}, "type": "Load"}}'), "a frame is wrong: Invalid value 'Load'"),
        ("import os, time; os.close(1); time.sleep(60)", "the engine"),
        ("raise SystemExit(3)", "ended by itself (exit code 3)"),
        ('import os; os.write(1, b\'{"v": 2, "type\'); os.kill(os.getpid(), 9)', OUT_OF_MEMORY),
    ],
    ids=["no JSON", "version", "kind", "closed pipe", "exit code", "half a frame"],
)
def test_an_engine_that_speaks_nonsense_or_nothing_is_ended(program: str, words: str) -> None:
    engine = Talker((sys.executable, "-S", "-c", program))
    engine.start()
    assert words in died(engine)
    engine.close()


def test_what_was_said_before_the_engine_was_left_is_no_news() -> None:
    ready = encode(Ready("a-model", None, "off", 100, (), 0.0, False)).decode()

    async def work(engine: RemoteEngine) -> None:
        loop = asyncio.get_running_loop()
        engine.follow(loop)
        engine.start()
        link = engine._link
        assert link is not None
        assert link.wait(PATIENCE_S)
        engine._take(link, loop.call_soon)
        engine.close(0)
        await asyncio.sleep(0)
        assert not engine.has_loaded

    asyncio.run(work(RemoteEngine((sys.executable, "-c", saying(ready.strip())))))


def test_what_is_asked_of_a_deaf_engine_waits_for_it(tmp_path: Path) -> None:
    hears = tmp_path / "hears"
    with double({"deaf": str(hears)}, load=False) as engine:
        engine.load(LaunchOptions(pair="a-pair"))
        asked = engine.ask("x" * 200_000)  # more than a pipe holds
        assert engine.drain() == []  # so it heard nothing yet, and we did not wait
        hears.touch()
        hear_last(engine, Hello)
        assert hear_all(engine, asked)[-1].id == asked  # type: ignore[union-attr]


@pytest.mark.first(1)
@pytest.mark.parametrize("way", ["polite", "pipe", "stubborn"])
def test_the_end_of_the_client_ends_it_in_the_middle(way: str) -> None:
    slow = {"stubborn_s": 300} if way == "stubborn" else {"chunk_s": 1.0}  # all: a minute, or more
    with raw(slow) as process:
        say(process, LOAD, encode(Request(1, (Message.user("x" * 3900),), GREEDY)))
        if way == "stubborn":
            reply(process, "Loading")
        else:
            while reply(process, "ReplyEvents")["events"][-1]["type"] != "Prefilling":
                pass
        if way == "polite":
            say(process, encode(Bye()))
        else:
            process.stdin.close()
        assert process.wait(PATIENCE_S) == (way == "stubborn")  # by itself, or by force


def served(
    monkeypatch: pytest.MonkeyPatch, script: dict[str, object], *, quiet: bool = False
) -> ModelPool:
    """Return what `serve` has of engines, which obey a script, for a model `a`."""
    monkeypatch.setattr(serving, "RemoteEngine", partial(RemoteEngine, command(script)))
    counts = {"parallel": 1, "max_queue": 1, "max_wait": None, "keep_alive": None}
    with click.Context(click.Command("serve")):  # which says whether --parallel was given
        given: Any = SimpleNamespace(**counts, forget=False, quiet=quiet)
        return serving._model_pool((SERVED,), Metrics(), ProgressLine(enabled=False), given)


SERVED = ServedModel("a", LaunchOptions(pair="a"), ReplyOptions())


def test_a_child_that_dies_while_a_server_starts_is_reported_by_the_error_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work() -> None:
        pool = served(monkeypatch, {"death": {"on": "load"}})
        with pytest.raises(EngineGone, match="SIGKILL"):
            await pool.start([SERVED])
        await pool.close()

    asyncio.run(work())
    assert "SIGKILL" not in capsys.readouterr().err


def test_who_waits_for_what_a_server_starts_with_is_told_why_it_cannot_be_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def ask(pool: ModelPool) -> None:
        async with pool.use(SERVED):
            raise AssertionError("it is not there")

    async def work() -> None:
        pool = served(monkeypatch, {"death": {"on": "load"}})
        starting, waiting = asyncio.create_task(pool.start([SERVED])), ask(pool)
        told = await asyncio.gather(starting, waiting, return_exceptions=True)
        assert [type(each) for each in told] == [EngineGone] * 2
        assert all("SIGKILL" in str(each) for each in told)
        with pytest.raises(EngineGone, match="the server stops"):
            await ask(pool)
        await pool.close()

    asyncio.run(work())


@pytest.mark.parametrize("quiet", [False, True])
def test_a_server_says_how_it_loaded_a_model_and_again_where_that_changed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, quiet: bool
) -> None:
    async def work() -> list[str]:
        pool = served(monkeypatch, {"notes": ["4 at a time"]}, quiet=quiet)
        await pool.start([SERVED])
        (entry,) = pool.entries
        engine = entry.backend._engine
        ready = engine.last_ready
        assert ready is not None
        for each in (ready, msgspec.structs.replace(ready, notes=("2 at a time",))):
            engine.watch(each)
        await pool.close()
        return capsys.readouterr().err.splitlines()

    lines = ["localspec: 4 at a time", "localspec: 2 at a time"]
    assert asyncio.run(work()) == ([] if quiet else lines)


def test_an_engine_that_complains_at_length_is_not_held_up() -> None:
    """A full pipe would stop it."""
    words = (
        "import sys; sys.stderr.write(300_000 * 'x'); print('done', flush=True); sys.stdin.read()"
    )
    link = ChildLink([sys.executable, "-c", words])
    lines, end_s = list[bytes](), time.monotonic() + PATIENCE_S
    while not lines and time.monotonic() < end_s and link.wait(PATIENCE_S):
        lines += link.read()
    assert lines == [b"done"]
    link.end(0)
    assert not link.alive
