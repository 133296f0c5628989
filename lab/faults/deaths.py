"""SIGKILL and SIGSTOP: of the command, of its engine, of another process that holds what it needs."""

import os
import signal
import time
from pathlib import Path
from random import Random

from lab.faults.ground import (
    ANSWER,
    LINES,
    PATIENCE,
    SHORT_CHAT,
    Ended,
    Ground,
    Running,
    answer,
    batch,
    batch_arguments,
    chat,
)
from lab.faults.soundness import (
    assert_clear,
    assert_fine,
    assert_kept,
    assert_sound_telemetry,
    assert_told,
    messages,
    records,
)
from lab.faults.trial import trial

_LONG = ("chat", "--plain", *ANSWER, "--max-tokens", "400")


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until_gone(pids: list[int]) -> None:
    for _ in range(PATIENCE):
        if not any(map(_alive, pids)):
            return
        time.sleep(0.02)
    raise AssertionError("an engine outlived whoever started it")


@trial("run", "killed at a random moment")
def run_is_killed(ground: Ground, chance: Random) -> str:
    with ground.started("run", *ANSWER, "Tell a long story.") as running:
        seen = chance.choice([0, 0, 1, 100, 400])
        running.until(lambda each: len(each.out) >= seen)
        time.sleep(chance.uniform(0, 1))
        running.signal(signal.SIGKILL)
    assert_sound_telemetry(ground)
    assert_fine(answer(ground))
    return ""


@trial("chat", "killed at a random moment")
def chat_is_killed(ground: Ground, chance: Random) -> str:
    questions = [f"Name river {n}." for n in range(3)]
    with ground.started(*SHORT_CHAT) as running:
        for each in questions:
            running.say(each)
        done = chance.randint(0, len(questions))
        running.until_answers(done)
        time.sleep(chance.uniform(0, 0.3))
        done = running.answers
        engines = running.children()
        running.signal(signal.SIGKILL)
    until_gone(engines)
    if done:
        assert_kept(ground, questions[:done])
    assert_fine(chat(ground, "Still there?"))
    assert_kept(ground, [*questions[:done], "Still there?"])
    assert {state for _, _, state in messages(ground)} <= {"complete", "cut"}
    return ""


@trial("batch", "killed at a random moment", short=True)
def batch_is_killed(ground: Ground, chance: Random) -> str:
    with ground.started("batch", *batch_arguments(ground)) as running:
        wanted = chance.randint(0, 5)
        running.until(lambda _: len(records(ground.output, torn=True)) >= wanted)
        running.signal(signal.SIGKILL)
    before = records(ground.output, torn=True)
    assert_fine(batch(ground))
    assert records(ground.output) == LINES
    assert records(ground.output)[: len(before)] == before
    return ""


@trial("chat", "its engine is killed", short=True)
def engine_is_killed(ground: Ground, chance: Random) -> str:
    with ground.started(*_LONG) as running:
        running.say("Tell a long story.")
        running.until(lambda each: len(each.out) > 20 + chance.randint(0, 200))
        (engine,) = running.children()
        os.kill(engine, signal.SIGKILL)
        running.until(lambda each: b"restarting it" in each.err)
        told = assert_told(_so_far(running))
        running.say("/set max_tokens 8")
        running.say("Name a river.")
        running.until_answers(1)
        ended = running.end()
    assert_fine(ended)
    assert_kept(ground, ["Name a river."])
    role, content, state = messages(ground)[1]
    assert (role, state) == ("assistant", "cut")
    assert len(content) > 20, "what was shown of the answer is kept"
    return told


@trial("chat", "its engine is frozen", short=True)
def engine_is_frozen(ground: Ground, _: Random) -> str:
    with ground.started(*_LONG) as running:
        running.say("Tell a long story.")
        running.until(lambda each: len(each.out) > 20)
        (engine,) = running.children()
        os.kill(engine, signal.SIGSTOP)
        time.sleep(0.3)
        shown = len(running.out)
        running.signal(signal.SIGINT)  # asks an engine to stop that does not hear
        time.sleep(2.0)  # two at once would be one
        running.signal(signal.SIGINT)
        ended = running.end(close_stdin=False)
    assert ended.code == 130, ended.err
    assert_told(ended)
    until_gone([engine])
    role, content, state = messages(ground)[1]
    assert (role, state) == ("assistant", "cut")
    assert len(content) >= shown, "what was shown of the answer is kept"
    assert_fine(chat(ground, "Still there?"))
    return "a second Ctrl-C leaves (130)"


@trial("chat", "another one beside it is frozen")
def another_chat_is_frozen(ground: Ground, chance: Random) -> str:
    with ground.started(*_LONG) as frozen:
        frozen.say("Tell a long story.")
        frozen.until(lambda each: len(each.out) > 20)
        time.sleep(chance.uniform(0, 1))
        frozen.signal(signal.SIGSTOP)
        ended = chat(ground, "And you?")
        assert_fine(ended)
        frozen.signal(signal.SIGCONT)
        frozen.signal(signal.SIGINT)
        frozen.until_answers(1)
        assert_fine(frozen.end())
    assert_kept(ground, ["And you?"])
    assert len(messages(ground)) == 4
    return ended.told if "saved" in ended.told else ""


@trial("batch", "another one on its output is frozen")
def another_batch_is_frozen(ground: Ground, _: Random) -> str:
    with ground.started("batch", *batch_arguments(ground)) as frozen:
        frozen.until(lambda _: len(records(ground.output, torn=True)) >= 1)
        frozen.signal(signal.SIGSTOP)
        told = assert_clear(batch(ground))
        assert "another run is writing" in told
        frozen.signal(signal.SIGCONT)
        assert_fine(frozen.end())
    assert records(ground.output) == LINES
    assert_fine(batch(ground))
    return told


def _so_far(running: Running) -> Ended:
    return Ended(0, running.out.decode(errors="replace"), running.err.decode())
