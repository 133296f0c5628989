"""Frames: what goes in comes out, and what is no frame is refused in one line."""

import json
from contextlib import suppress
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.calls import Tool
from localspec.chat.events import Reply, RoundDone, Started, Text
from localspec.engine import wire
from localspec.engine.ask import Ask
from localspec.engine.protocol import (
    VERSION,
    Command,
    EngineDied,
    Forecast,
    Loading,
    Notice,
    ReplyDone,
    ReplyEvents,
)
from localspec.engine.wire import COMMANDS, NOTICES, FrameError, decode, encode
from localspec.messages import Message
from localspec.options import LaunchOptions, ReplyOptions
from tests.option_values import some
from tests.test_messages import MESSAGES

TEXTS = st.text(st.characters(exclude_categories=()), max_size=20)  # lone surrogates, too
st.register_type_strategy(str, TEXTS)
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))
st.register_type_strategy(int, st.integers(-(1 << 40), 1 << 40))
st.register_type_strategy(ReplyOptions, some(ReplyOptions))
st.register_type_strategy(LaunchOptions, some(LaunchOptions))
st.register_type_strategy(Message, MESSAGES)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
SCHEMAS = st.dictionaries(TEXTS, JSON, max_size=2)
st.register_type_strategy(Tool, st.builds(Tool, st.sampled_from(["a", "b.c"]), SCHEMAS, TEXTS))
NOTICE_KINDS = [kind for kind in get_args(Notice) if kind is not EngineDied]


@given(st.one_of([st.from_type(kind) for kind in get_args(Command)]))
def test_a_command_comes_out_as_it_went_in(command: Command) -> None:
    line = encode(command)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line, COMMANDS) == command


@given(st.one_of([st.from_type(kind) for kind in NOTICE_KINDS]))
def test_a_notice_comes_out_as_it_went_in(notice: Notice) -> None:
    assert decode(encode(notice), NOTICES) == notice


@given(st.lists(st.from_type(RoundDone), max_size=3), st.from_type(Text), st.from_type(Started))
def test_what_happened_comes_out_in_its_order(
    rounds: list[RoundDone], text: Text, started: Started
) -> None:
    told = ReplyEvents(1, (started, *rounds, text, *rounds))
    assert decode(encode(told), NOTICES) == told


@given(st.from_type(Reply), st.from_type(Message))
def test_a_reply_comes_out_with_all_of_its_figures(reply: Reply, message: Message) -> None:
    told = ReplyDone(1, reply, message, 2, Forecast(1.5, None, "a note"))
    assert decode(encode(told), NOTICES) == told


def frame(**changes: Any) -> bytes:
    return json.dumps({"v": VERSION, "type": "Cancel", "id": 3, **changes}).encode()


def said(part: object) -> bytes:
    return frame(type="Count", messages=[{"role": "user", "parts": [part]}])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"[1]", "a frame is a list"),
        (b"null", "a frame is a NoneType"),
        (b"{}", f"protocol None, this side speaks {VERSION}"),
        (frame(v=3), f"protocol 3, this side speaks {VERSION}: localspec was changed while it ran"),
        (frame(v=True), "protocol True"),
        (frame(v="1"), "protocol 1, this"),
        (frame(type="Nonsense"), "unknown type 'Nonsense'"),
        (frame(type=["Cancel"]), "unknown type"),
        (frame(type="Ready"), "unknown type 'Ready'"),
        (frame(type="EngineDied"), "unknown type"),
        (frame(more=1), "Cancel has no field 'more'"),
        (frame(id="3"), 'Cancel.id cannot be "3"'),
        (frame(id=3.0), "Cancel.id cannot be 3.0"),
        (frame(id=True), "Cancel.id cannot be true"),
        (frame(type="Count"), "Count lacks one of messages"),
        (frame(type="Count", messages={}), "Count.messages is a dict, not a list"),
        (frame(type="Count", messages=["x"]), "Count.messages[0] is a str, not an object"),
        (
            frame(type="Count", messages=[{"role": "boss", "parts": []}]),
            'Count.messages[0].role cannot be "boss"',
        ),
        (frame(type="Count", messages=[{"parts": []}]), "Count.messages[0] lacks one of role"),
        (said(3), "Count.messages[0].parts[0] is a int, not an object"),
        (said({"text": "x"}), "Count.messages[0].parts[0] is of unknown type 'None'"),
        (said({"type": "Ask"}), "Count.messages[0].parts[0] is of unknown type 'Ask'"),
        (said({"type": ["TextPart"]}), "Count.messages[0].parts[0] is of unknown type"),
        (said({"type": "TextPart"}), "Count.messages[0].parts[0] lacks one of text"),
        (
            said({"type": "ToolCall", "id": "1", "name": "f", "arguments": "{}"}),
            "Count.messages[0] cannot be: a message of role user holds a ToolCall",
        ),
        (
            frame(type="Ask", messages=[], options={"sampling": {"temperature": "hot"}}),
            "Ask.options.sampling.temperature cannot be",
        ),
        (
            frame(type="Ask", messages=[], options={"sampling": {"temperature": -1}}),
            "Ask.options.sampling cannot be: temperature is -1.0: it must be 0 or more",
        ),
        (
            frame(type="Ask", messages=[], options={"sampling": {"logit_bias": [[1]]}}),
            "Ask.options.sampling.logit_bias[0] has 1 items, not 2",
        ),
        (frame(type="Ask", messages=[], options={"json_schema": {}}), "json_schema cannot be {}"),
        (frame(type="Ask", messages=[], options={"max_tokens": 0}), "max_tokens is 0"),
        (
            b'{"v": %d, "type": "Load", "options": {"pair": "a\\n", "target": "b"}}' % VERSION,
            "Load.options cannot be: pair a and target b cannot be combined",
        ),
        (b'{"v": 10, "type": "Ask", "id": NaN}', "not valid JSON: NaN is not a number"),
        (b'{"v": 10, "type": "Cancel", "id": ' + b"9" * 10_000 + b"}", "not valid JSON"),
    ],
)
def test_what_is_no_frame_is_refused_in_one_line(line: bytes, told: str) -> None:
    with pytest.raises(FrameError) as caught:
        decode(line, COMMANDS)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (3, "events[0] is a int, not an object"),
        ({"text": "x"}, "events[0] is of unknown type 'None'"),
        ({"type": "Finished", "reply": {}}, "events[0] is of unknown type 'Finished'"),
        ({"type": "Text"}, "events[0] lacks one of text, thinking, logprobs"),
        ({"type": "Text", "text": "x", "more": 1}, "events[0] has no field 'more'"),
        (
            {"type": "RoundDone", "texts": [], "round": {"draft": {"drafter": None}}},
            "events[0].round.draft.drafter cannot be null",
        ),
    ],
)
def test_what_is_no_event_is_refused_in_one_line(event: object, told: str) -> None:
    with pytest.raises(FrameError) as caught:
        decode(frame(type="ReplyEvents", events=[event]), NOTICES)
    assert str(caught.value) == f"ReplyEvents.{told}"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
        lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    ),
    st.sampled_from([*COMMANDS, *NOTICES]),
    st.sampled_from(["id", "messages", "options", "events", "reply"]),
)
def test_nothing_else_is_raised_whatever_comes(value: object, kind: str, name: str) -> None:
    line = json.dumps({"v": VERSION, "type": kind, name: value}).encode()
    with suppress(FrameError):
        decode(line, {**COMMANDS, **NOTICES})


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_what_is_no_number_is_not_sent(number: float) -> None:
    with pytest.raises(ValueError, match="is not a number"):
        encode(Loading("m", number))
    assert decode(encode(Loading("NaN Infinity", 0.5)), NOTICES) == Loading("NaN Infinity", 0.5)


def test_a_frame_that_is_too_large_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_FRAME_BYTES", 1000)
    with pytest.raises(
        FrameError, match=r"Ask has 1[0-9]{3} bytes, more than 1000: send less text"
    ):
        encode(Ask(1, (Message.user("x" * 1000),)))
    with pytest.raises(FrameError, match=r"ReplyEvents .*: ask for less, or read answers faster"):
        encode(ReplyEvents(1, (Text("x" * 1000),)))
    encode(ReplyEvents(1, ()))
