"""Clocks that are wrong: 1970, 2096, and one that jumps by years from one look to the next."""

from random import Random

from lab.faults.ground import CLOCK, Ground, answer, batch, chat
from lab.faults.soundness import (
    assert_fine,
    assert_kept,
    assert_sound_telemetry,
    messages,
    records,
)
from lab.faults.trial import Trial

_HOW = ["past", "future", "jumping"]


def _wrong(chance: Random) -> dict[str, str]:
    return {"PYTHONPATH": str(CLOCK), "LOCALSPEC_WRONG_CLOCK": chance.choice(_HOW)}


def run_by_a_wrong_clock(ground: Ground, chance: Random) -> str:
    wrong = answer(ground, variables=_wrong(chance))
    assert_fine(wrong)
    right = answer(ground)
    assert_fine(right)
    assert wrong.out == right.out
    assert_sound_telemetry(ground)
    return ""


def chat_by_a_wrong_clock(ground: Ground, chance: Random) -> str:
    assert_fine(chat(ground, "Before."))
    for _ in range(2):
        assert_fine(chat(ground, "One?", "Two?", variables=_wrong(chance)))
    assert_fine(chat(ground, "After."))
    assert len(messages(ground)) == 12
    assert_kept(ground, ["Before.", "One?", "Two?", "After."])
    return ""


def batch_by_a_wrong_clock(ground: Ground, chance: Random) -> str:
    assert_fine(batch(ground, variables=_wrong(chance)))
    assert records(ground.folder / "out.jsonl") == [f"line-{n}" for n in range(6)]
    assert_fine(batch(ground))
    return ""


TRIALS = [
    Trial("a wall clock that is wrong, or jumps", "run", run_by_a_wrong_clock, short=True),
    Trial("a wall clock that is wrong, or jumps", "chat", chat_by_a_wrong_clock),
    Trial("a wall clock that is wrong, or jumps", "batch", batch_by_a_wrong_clock),
]
