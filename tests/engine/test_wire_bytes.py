"""The wire's bytes: every command and message as it travels, so that a change of the protocol is seen.

After a change that is meant, write them anew: python -m tests.engine.test_wire_bytes
"""

from pathlib import Path

import pytest

from localspec.engine.protocol import (
    Ask,
    Bye,
    Cancel,
    Command,
    Count,
    Counted,
    Downloading,
    DrafterFigures,
    Failed,
    Finished,
    Hello,
    LensToken,
    Load,
    LoadCancelled,
    Loading,
    Measuring,
    Message,
    Options,
    Prefilling,
    Ready,
    RestoreState,
    RoundFigures,
    SaveState,
    Span,
    Started,
    StateLeft,
    StateRestored,
    StateSaved,
    Streamed,
    Turn,
)
from localspec.engine.wire import COMMANDS, MESSAGES, decode, encode

GOLDEN = Path(__file__).with_name("wire_bytes.jsonl")

TURNS = (
    Turn("system", "Be brief."),
    Turn("user", 'é 🚀 "quoted" \\ \t\n\ud83d'),  # half of a character, as a paste may hold
    Turn("assistant", "So.", "thoughts"),
)
# Every kind as it is by default, and with every field set to something else.
COMMAND_SAMPLES: tuple[Command, ...] = (
    Load(),
    Load("p", "t", "d", "model", 2, True, 512, 3, ("GPU0", "GPU1"), 2, "bf16", True, False),
    Ask(1, ()),
    Ask(
        2,
        TURNS,
        Options(0.5, 1, 0.25, 0.125, 1.1, 0.2, -0.3, 5, 1 << 40, 9, ("a", "\n")),
        draft=False,
        keep=7,
        aside=True,
        drop_oldest=True,
    ),
    Count(3, TURNS),
    Cancel(),
    Cancel(4),
    SaveState("/tmp/é"),
    RestoreState("/tmp/é"),
    Bye(),
)
MESSAGE_SAMPLES: tuple[Message, ...] = (
    Hello("0.1.0", 123),
    Downloading("smollm2-135m:Q4_1", 1, 98362432, "hub"),
    Loading("t", 0.5),
    Measuring("t", 1.0),
    Ready("t", None, "lookup", 4096, (), 0.25, False),
    Ready("t", "d", "auto", 8192, ("One.", "Two."), 1.5, True, 0.021, 0.6),
    LoadCancelled(None),
    LoadCancelled("t"),
    Started(1, 10, 4),
    Started(1, 10, 4, 2),
    Prefilling(1, 3, 6),
    Streamed(1),
    Streamed(
        1,
        (Span("é 🚀"), Span("hm", True)),
        (LensToken("é", "first"), LensToken("", "model")),
        (RoundFigures("model", 3, 2, 3, 0.01, 0.02, 0.003),),
    ),
    Finished(1, TURNS[2], "eog", 7, 10, 4, 1, None, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0, None, "off", ()),
    Finished(
        1,
        TURNS[2],
        "stop_string",
        7,
        10,
        4,
        12,
        0.11,
        0.1,
        0.5,
        0.05,
        0.2,
        0.25,
        0.05,
        22.0,
        "auto",
        (DrafterFigures("model", 3, 9, 6, 9), DrafterFigures("lookup", 1, 5, 2, 3)),
        1.25,
        1.5,
        "What it would have cost.",
    ),
    Counted(3, 10, 4096),
    StateSaved("/tmp/é", 10, 1 << 20),
    StateRestored("/tmp/é", 10),
    StateLeft("/tmp/é", "no reason"),
    Failed(None, "FrameError", "what, which value, what to do"),
    Failed(2, "UsageError", "what"),
)
SAMPLES = (*COMMAND_SAMPLES, *MESSAGE_SAMPLES)


def frames() -> list[bytes]:
    return GOLDEN.read_bytes().splitlines(keepends=True)


def test_every_kind_has_a_sample() -> None:
    assert {type(each).__name__ for each in SAMPLES} == {*COMMANDS, *MESSAGES}
    assert len(frames()) == len(SAMPLES)


@pytest.mark.parametrize("index", range(len(SAMPLES)), ids=lambda n: type(SAMPLES[n]).__name__)
def test_a_message_is_exactly_these_bytes(index: int) -> None:
    assert encode(SAMPLES[index]) == frames()[index]


@pytest.mark.parametrize("index", range(len(SAMPLES)), ids=lambda n: type(SAMPLES[n]).__name__)
def test_these_bytes_are_exactly_this_message(index: int) -> None:
    assert decode(frames()[index], {**COMMANDS, **MESSAGES}) == SAMPLES[index]


if __name__ == "__main__":
    GOLDEN.write_bytes(b"".join(map(encode, SAMPLES)))
