"""Frames: what goes in comes out, and what is no frame is refused in one line."""

import json
from contextlib import suppress
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.calls import Tool
from localspec.chat.events import Finished, Reply, RoundDone, Text
from localspec.chat.request import Request
from localspec.engine import protocol as wire
from localspec.engine.protocol import (
    COMMANDS,
    NOTICES,
    VERSION,
    Command,
    EngineDied,
    FrameError,
    Hello,
    Notice,
    ReplyEvents,
    encode,
)
from localspec.messages import Held, Message
from localspec.options import LaunchOptions, ReplyOptions
from tests.option_values import some
from tests.test_messages import messages

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
st.register_type_strategy(str, TEXTS)
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))
st.register_type_strategy(int, st.integers(-(1 << 40), 1 << 40))
st.register_type_strategy(ReplyOptions, some(ReplyOptions))
st.register_type_strategy(LaunchOptions, some(LaunchOptions))
st.register_type_strategy(Message, messages(TEXTS))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
SCHEMAS = st.dictionaries(TEXTS, JSON, max_size=2)
NUMBERS = st.integers(0, 1 << 40)
st.register_type_strategy(Held, st.builds(Held, st.dictionaries(TEXTS, NUMBERS), NUMBERS))
NAMED = st.dictionaries(TEXTS, TEXTS)
st.register_type_strategy(Hello, st.builds(Hello, TEXTS, NUMBERS, NAMED))
st.register_type_strategy(Tool, st.builds(Tool, st.sampled_from(["a", "b.c"]), SCHEMAS, TEXTS))
NOTICE_KINDS = [kind for kind in get_args(Notice) if kind is not EngineDied]


@given(st.one_of([st.from_type(kind) for kind in get_args(Command)]))
def test_a_command_comes_out_as_it_went_in(command: Command) -> None:
    line = encode(command)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert COMMANDS.decode(line) == command


ROUNDS = st.lists(st.from_type(RoundDone) | st.from_type(Text), max_size=4).map(tuple)


@given(
    st.one_of([st.from_type(kind) for kind in NOTICE_KINDS])
    | st.builds(ReplyEvents, st.just(1), ROUNDS)
    | st.builds(Finished, st.from_type(Reply), st.from_type(Message))
)
def test_a_notice_comes_out_as_it_went_in(notice: Notice) -> None:
    assert NOTICES.decode(encode(notice)) == notice


def frame(kind: str = "Cancel", *, version: object = VERSION, **fields: Any) -> bytes:
    return json.dumps({"v": version, "type": kind, **fields}).encode()


def ask(**options: Any) -> bytes:
    return frame("Request", id=1, messages=[], options=options)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "truncated"),
        (b"\xff\xfe", "malformed"),
        (b"{}", f"protocol None, this side speaks {VERSION}"),
        (frame(version=3), f"protocol 3, this side speaks {VERSION}: localspec was changed"),
        (frame(version="1"), "protocol 1"),
        (b"{", "truncated"),
        (b"[" * 100_000, "array"),
        (b'{"v": %d, "type": "Cancel", "id": NaN}' % VERSION, "malformed"),
        (frame("Ready"), "Ready"),
        (frame("EngineDied"), "EngineDied"),
        (frame(id="3"), "`$.id`"),
        (frame("Count", id=1), "`messages`"),
        (frame("Count", id=1, messages=[{"role": "boss", "parts": []}]), "`$.messages[0].role`"),
        (ask(sampling={"temperature": "hot"}), "`$.options.sampling.temperature`"),
        (ask(sampling={"temperature": -1}), "temperature is -1.0: it must be 0 or more"),
        (ask(max_tokens=0), "max_tokens is 0"),
        (frame("Load", options={"pair": "a\n", "target": "b"}), "cannot be combined"),
    ],
)
def test_what_is_no_frame_is_refused_in_one_line(line: bytes, reason: str) -> None:
    with pytest.raises(FrameError) as caught:
        COMMANDS.decode(line)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
        lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    ),
    st.sampled_from([each.__name__ for each in (*get_args(Command), *NOTICE_KINDS)]),
    st.sampled_from(["id", "messages", "options", "events", "reply"]),
)
def test_nothing_else_is_raised_whatever_comes(value: object, kind: str, name: str) -> None:
    for frames in (COMMANDS, NOTICES):
        with suppress(FrameError):
            frames.decode(frame(kind, **{name: value}))


def test_half_of_a_character_travels_as_a_replacement() -> None:
    asked = Request(1, (Message.user("a\ud83d 🚀"),))
    assert COMMANDS.decode(encode(asked)) == Request(1, (Message.user("a\ufffd 🚀"),))


def test_a_frame_that_is_too_large_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_FRAME_BYTES", 1000)
    with pytest.raises(FrameError, match=r"Request has 1[0-9]{3} bytes, more than 1000"):
        encode(Request(1, (Message.user("x" * 1000),)))
    with pytest.raises(FrameError, match=r"ReplyEvents .*: ask for less, or read answers faster"):
        encode(ReplyEvents(1, (Text("x" * 1000),)))
    encode(ReplyEvents(1, ()))
