"""A model's file that is cut while its pages are mapped: SIGBUS ends whoever asks for one.

`--exact` maps them, and so does a wish for layers on a GPU, there or not.
"""

import os
import signal
from pathlib import Path
from random import Random

from lab.faults.ground import ANSWER, Ended, Ground, answer, batch, batch_arguments, chat
from lab.faults.soundness import (
    assert_clear,
    assert_fine,
    assert_kept,
    assert_sound_telemetry,
    assert_told,
    messages,
    records,
)
from lab.faults.trial import Trial

_MAPPED = ("--exact", "--draft", "off")
_LINES = [f"line-{n}" for n in range(6)]


def _own_model(ground: Ground) -> Path:
    """Return a copy that may be cut."""
    own = ground.folder / "own.gguf"
    own.write_bytes(ground.model.read_bytes())
    return own


def _assert_lost_page(ended: Ended) -> str:
    """See that it died of the page, and that one line says so."""
    assert ended.code == -signal.SIGBUS, f"code {ended.code}: {ended.err}"
    told = assert_told(ended)
    assert "a page of a file is gone" in told
    return told


def run_loses_its_model(ground: Ground, chance: Random) -> str:
    own = _own_model(ground)
    arguments = ("run", *ANSWER, *_MAPPED, "--target", str(own), "Tell a long story.")
    seen = chance.randint(1, 60)
    with ground.started(*arguments) as running:
        running.until(lambda each: len(each.out) >= seen)
        os.truncate(own, chance.choice([0, 1 << 20, 40 << 20]))
        told = _assert_lost_page(running.end())
        assert len(running.out) >= seen, "what was answered until then was written"
    assert_sound_telemetry(ground)
    assert_clear(answer(ground, "--target", str(own), "Hi"))
    assert_fine(answer(ground))
    return told


def batch_loses_its_model(ground: Ground, chance: Random) -> str:
    own, output = _own_model(ground), ground.folder / "out.jsonl"
    mapped = (*_MAPPED, "--target", str(own))
    with ground.started("batch", *batch_arguments(ground), *mapped) as running:
        wanted = chance.randint(1, 4)
        running.until(lambda _: len(records(output, torn=True)) >= wanted)
        os.truncate(own, 1 << 20)
        ended = running.end()
    told = _assert_lost_page(ended)
    before = records(output, torn=True)
    assert before == _LINES[: len(before)]
    assert len(before) >= wanted
    assert_clear(batch(ground, *mapped))
    assert records(output) == before
    _own_model(ground)
    assert_fine(batch(ground, *mapped))
    assert records(output) == _LINES
    return told


def chat_loses_its_model(ground: Ground, chance: Random) -> str:
    own = _own_model(ground)
    mapped = (*_MAPPED, "--max-tokens", "400", "--target", str(own))
    arguments = ("chat", "--plain", *ANSWER, *mapped)
    with ground.started(*arguments) as running:
        running.say("Tell a long story.")
        seen = 20 + chance.randint(0, 200)
        running.until(lambda each: len(each.out) > seen)
        os.truncate(own, 1 << 20)
        running.until(lambda each: b"/restart starts" in each.err)
        told = next(line for line in running.err.decode().splitlines() if "/restart" in line)
        assert "crashed (SIGBUS)" in told
        running.say("/restart")
        running.say("Still there?")
        running.until(lambda each: b"download it again" in each.err)
        _own_model(ground)  # the user does
        running.say("/set max_tokens 8")
        running.say("/restart")
        running.say("Name a river.")
        running.until_answers(1)
        ended = running.end()
    assert_told(ended)
    assert_kept(ground, ["Name a river."])
    role, content, state = messages(ground)[1]
    assert (role, state) == ("assistant", "cut")
    assert len(content) > seen, "what was shown of the answer is kept"
    assert_fine(chat(ground, "Still there?"))
    return told


TRIALS = [
    Trial("the model's file is cut while its pages are mapped", "run", run_loses_its_model),
    Trial("the model's file is cut while its pages are mapped", "batch", batch_loses_its_model),
    Trial(
        "the model's file is cut while its pages are mapped",
        "chat",
        chat_loses_its_model,
        short=True,
    ),
]
