"""The wire's bytes: every command and notice as it travels, so that a change of the protocol is seen.

After a change that is meant, write them anew: python -m tests.engine.test_wire_bytes
"""

from pathlib import Path

import pytest

from localspec.calls import Tool
from localspec.calls.policy import CallPolicy
from localspec.chat.events import (
    CallBegun,
    CallDelta,
    CallDone,
    Prefilling,
    Reply,
    RoundDone,
    Started,
    Text,
    TokenLogprob,
)
from localspec.decoding.round import Draft, Round, Spent, StopReason, Verdict
from localspec.decoding.stats import AcceptanceStats
from localspec.engine.ask import Ask
from localspec.engine.protocol import (
    Bye,
    Cancel,
    Command,
    Count,
    Counted,
    Detokenize,
    Downloading,
    Failed,
    Forecast,
    Hello,
    Load,
    LoadCancelled,
    Loading,
    Measuring,
    Notice,
    Ready,
    ReplyDone,
    ReplyEvents,
    RestoreState,
    SaveState,
    StateLeft,
    StateRestored,
    StateSaved,
    Tokenize,
    Tokens,
)
from localspec.engine.wire import COMMANDS, NOTICES, decode, encode
from localspec.messages import DocumentPart, Infill, Message, ToolCall, ToolResult
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams

GOLDEN = Path(__file__).with_name("wire_bytes.jsonl")

SAID = (
    Message.system("Be brief."),
    # Half of a character, as a paste may hold, and a file.
    Message.user('é 🚀 "quoted" \\ \t\n\ud83d', (DocumentPart("a.txt", "long"),)),
    Message.assistant("So.", "thoughts"),
    Message("assistant", (ToolCall("1", "area", '{"of": "x"}'),)),
    Message("tool", (ToolResult("1", "none", is_error=True),)),
)
# Every kind as it is by default, and with every field set to something else.
LOAD = LoadOptions(512, "bf16", 2, 3, ("GPU0", "GPU1"), 4, False, False, "mmap", 128, 9)
LAUNCH = LaunchOptions(
    "p", None, "d", "model", 2, LOAD, exact=False, offline=True, fit=False, further=("lookup",)
)
SAMPLING = SamplingParams(0.5, 1, 0.25, 0.125, 1.1, 0.2, -0.3, 5, ((7, -1.5), (8, float("-inf"))))
COMMAND_SAMPLES: tuple[Command, ...] = (
    Load(),
    Load(LAUNCH),
    Load(LaunchOptions(target="t", exact=True)),
    Ask(1, ()),
    Ask(
        2,
        SAID,
        ReplyOptions(SAMPLING, 1 << 40, 9, ("a", "\n"), None, '{"type": "null"}'),
        draft="lookup",
        keep=7,
        aside=True,
        drop_oldest=True,
        infill=Infill("a", "b", (("c.py", "d"),), 4, 0.25),
        logprobs=3,
        afresh=True,
        client="5f2c",
        tools=(Tool("area", {"type": "object", "properties": {"of": {"enum": [1, None]}}}, "é"),),
        conversation=12,
        call_policy=CallPolicy(
            ("a",), ("b",), ("c",), (("*", 2),), (("d", ("e", "f")),), ("g",), "required", False
        ),
    ),
    Ask(3, SAID[:2], ReplyOptions(grammar='root ::= "a"')),
    Count(4, SAID),
    Count(4, SAID, (Tool("now", {}),)),
    Tokenize(5, "é"),
    Tokenize(6, "<s>", add_special=True),
    Detokenize(7, (1, 2)),
    Cancel(),
    Cancel(3),
    SaveState("/tmp/é"),
    RestoreState("/tmp/é"),
    Bye(),
)
DRAFT = Draft((5, 6), (0.75, 0.5), "model", (1.5, 1e6), ((1, 2), (9, 3)), (1,))
SPENT = Spent(0.01, 0.02, 0.04, 0.001, 0.002, 0.003)
FIRST = Round(Draft(drafter="prompt"), Verdict(0, 5), (5,))
ROUND = Round(DRAFT, Verdict(1, 4, 9), (5, 9, 4), SPENT)
PLAIN = Reply("", "", (), StopReason.CANCELLED, 7, 10, 4, 0, None, 0.1, 0.0, Spent(), "off")
REPLY = Reply(
    "é 🚀",
    "hm",
    (5, 9),
    StopReason.STOP_STRING,
    7,
    10,
    4,
    3,
    0.11,
    0.1,
    0.5,
    SPENT,
    "auto",
    AcceptanceStats(1, 2, 1, 3, 1, 1, {"model": AcceptanceStats(1, 2, 1, 3, 1, 1)}),
    (ToolCall("1", "area", '{"of": "x"}'),),
)
NOTICE_SAMPLES: tuple[Notice, ...] = (
    Hello("0.1.0", 123),
    Downloading("smollm2-135m:Q4_1", 1, 98362432, "hub"),
    Loading("t", 0.5),
    Measuring("t", 1.0),
    Ready("t", None, "lookup", 4096, (), 0.25, False),
    Ready("t", "d", "auto", 8192, ("One.", "Two."), 1.5, True, 0.6),
    LoadCancelled(None),
    LoadCancelled("t"),
    ReplyEvents(1, ()),
    ReplyEvents(1, (Started(10, 4), Prefilling(3, 6))),
    ReplyEvents(
        1,
        (
            RoundDone(FIRST, ("é",)),
            Text("é 🚀"),
            RoundDone(ROUND, ("", "🚀")),
            Text("hm", True, (TokenLogprob("hm", -0.5, (("hm", -0.5), ("\xc3", -1.5))),)),
        ),
    ),
    ReplyEvents(
        1,
        (CallBegun("1", "area"), CallDelta("1", "{}"), CallDone(ToolCall("1", "area", "{}"))),
    ),
    ReplyDone(1, PLAIN, Message.assistant("")),
    ReplyDone(
        1,
        REPLY,
        SAID[2],
        2,
        Forecast(1.25, None, "What it would have cost."),
        "on: drafted",
        "",
        ((1, 40), (9, 2)),
    ),
    Counted(4, 10, 4096),
    Tokens(5, (), ()),
    Tokens(6, (1, 2), ("a", "\xc3")),
    StateSaved("/tmp/é", 10, 1 << 20),
    StateRestored("/tmp/é", 10),
    StateLeft("/tmp/é", "no reason"),
    Failed(None, "FrameError", "what, which value, what to do"),
    Failed(2, "UsageError", "what"),
)
SAMPLES = (*COMMAND_SAMPLES, *NOTICE_SAMPLES)


def frames() -> list[bytes]:
    return GOLDEN.read_bytes().splitlines(keepends=True)


def test_every_kind_has_a_sample() -> None:
    assert {type(each).__name__ for each in SAMPLES} == {*COMMANDS, *NOTICES}
    assert len(frames()) == len(SAMPLES)


@pytest.mark.parametrize("index", range(len(SAMPLES)), ids=lambda n: type(SAMPLES[n]).__name__)
def test_a_command_or_notice_is_exactly_these_bytes(index: int) -> None:
    assert encode(SAMPLES[index]) == frames()[index]


@pytest.mark.parametrize("index", range(len(SAMPLES)), ids=lambda n: type(SAMPLES[n]).__name__)
def test_these_bytes_are_exactly_this_command_or_notice(index: int) -> None:
    assert decode(frames()[index], {**COMMANDS, **NOTICES}) == SAMPLES[index]


if __name__ == "__main__":
    GOLDEN.write_bytes(b"".join(map(encode, SAMPLES)))
