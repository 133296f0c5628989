"""What leaves, in which order, and how little of it where nobody reads."""

import threading
import time

import pytest

from localspec.chat.events import (
    CallBegun,
    CallDelta,
    CallDone,
    Prefilling,
    RoundDone,
    Started,
    StreamEvent,
    Text,
)
from localspec.decoding.round import Draft, Round, Verdict
from localspec.engine.outbox import Outbox
from localspec.engine.protocol import (
    Downloading,
    Failed,
    FrameError,
    Hello,
    Loading,
    Measuring,
    Notice,
    ReplyEvents,
)
from localspec.messages import ToolCall
from tests.waiting import PATIENCE_S, until


def happened(request: int, *events: StreamEvent) -> ReplyEvents:
    return ReplyEvents(request, events)


class Reader:
    """Reads once it is allowed to."""

    def __init__(self) -> None:
        self.read: list[Notice] = []
        self.reads = threading.Event()
        self.waits = threading.Event()

    def __call__(self, message: Notice) -> None:
        self.waits.set()
        assert self.reads.wait(PATIENCE_S)
        self.read.append(message)


@pytest.fixture
def reader() -> Reader:
    return Reader()


@pytest.fixture
def outbox(reader: Reader) -> Outbox:
    """An outbox that is held up by its first message."""
    outbox = Outbox(reader)
    outbox.put(Hello("", 0))
    assert reader.waits.wait(PATIENCE_S)
    return outbox


def all_of(outbox: Outbox, reader: Reader) -> list[Notice]:
    """Let everything through, and return what came after the first message."""
    reader.reads.set()
    outbox.close(PATIENCE_S)
    return reader.read[1:]


def test_text_that_waits_is_joined_and_no_round_is_lost(outbox: Outbox, reader: Reader) -> None:
    rounds = [
        RoundDone(Round(Draft(), Verdict(0, at), (at,)), (letter,))
        for at, letter in enumerate("abc")
    ]
    for letter, done in zip("abc", rounds, strict=True):
        outbox.put(happened(1, Text(letter)))
        outbox.put(happened(1, Text(letter)))
        outbox.put(happened(1, done))
    outbox.put(happened(1, Text("hm", thinking=True), Text("d")))
    outbox.put(happened(1, Text("e")))
    assert all_of(outbox, reader) == [
        happened(
            1,
            *(
                each
                for pair in zip(map(Text, ("aa", "bb", "cc")), rounds, strict=True)
                for each in pair
            ),
            Text("hm", thinking=True),
            Text("de"),
        )
    ]


def test_each_of_several_replies_is_joined_by_itself(outbox: Outbox, reader: Reader) -> None:
    for letter in "abc":
        for request in (1, 2):
            outbox.put(happened(request, Text(letter * request)))
    assert all_of(outbox, reader) == [happened(1, Text("abc")), happened(2, Text("aabbcc"))]


def test_joining_takes_no_longer_the_more_there_is(outbox: Outbox, reader: Reader) -> None:
    done = RoundDone(Round(Draft(), Verdict(0, 1), (1,)), ("x",))
    took_s = []
    for _ in range(40):
        start_s = time.thread_time()
        for _ in range(200):
            outbox.put(happened(1, done))
            outbox.put(happened(1, Text("x")))
        took_s.append(time.thread_time() - start_s)
    # The quickest of ten each: what else the machine does can slow some of them, and not all.
    assert min(took_s[-10:]) < 4 * min(took_s[:10]), (
        "it would be sixty times as long if each looked at all before"
    )
    (joined,) = all_of(outbox, reader)
    assert isinstance(joined, ReplyEvents)
    assert len(joined.events) == 16_000


def test_of_a_progress_only_the_last_is_told(outbox: Outbox, reader: Reader) -> None:
    for done in range(5000):  # of two models at once
        outbox.put(Downloading("a", done, 5000, "hub"))
        outbox.put(Downloading("b", 2 * done, 10_000, "hub"))
    for done in range(100):
        outbox.put(Loading("a", done / 100))
        outbox.put(Measuring("a", done / 100))
        outbox.put(happened(1, *([Started(100, 0)] if done == 0 else []), Prefilling(done, 100)))
    assert all_of(outbox, reader) == [
        Downloading("a", 4999, 5000, "hub"),
        Downloading("b", 9998, 10_000, "hub"),
        Loading("a", 0.99),
        Measuring("a", 0.99),
        happened(1, Started(100, 0), Prefilling(99, 100)),
    ]


def test_nothing_is_joined_across_what_is_no_stream(outbox: Outbox, reader: Reader) -> None:
    told: list[Notice] = [Loading("a", 0.5), Hello("again", 1), Loading("a", 0.1)]
    for message in told:
        outbox.put(message)
    assert all_of(outbox, reader) == told


def test_where_nobody_is_left_nothing_is_kept_and_nothing_raised() -> None:
    def gone(*_: Notice) -> None:
        raise BrokenPipeError

    for outbox in (Outbox(gone), Outbox(lambda _: None, gone)):
        for _ in range(3):
            outbox.put(Hello("", 0))
        outbox.close(PATIENCE_S)
        outbox.put(Hello("", 0))


def test_what_cannot_be_written_ends_its_own_request_and_no_other() -> None:
    read: list[Notice] = []

    def write(notice: Notice) -> None:
        if isinstance(notice, ReplyEvents) and notice.id < 3:
            raise (FrameError("too large"), ValueError("NaN is not a number"))[notice.id - 1]
        read.append(notice)

    outbox = Outbox(write)
    for request in (1, 2, 3):
        outbox.put(happened(request, Text("x")))
    outbox.put(Failed(1, "UsageError", "what came later of it"))
    outbox.close(PATIENCE_S)
    large, strange, sound = read
    assert large == Failed(1, "FrameError", "too large")
    assert isinstance(strange, Failed)
    assert (strange.id, strange.kind) == (2, "Fault")
    assert sound == happened(3, Text("x"))


def test_a_failure_that_cannot_be_told_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Notice] = []

    class Closed:
        def write(self, text: str) -> None:
            raise OSError("stderr is closed")

    class Nameless(ValueError):
        def __str__(self) -> str:
            raise TypeError

    def write(notice: Notice) -> None:
        if notice in (happened(1, Text("x")), happened(2, Text("x"))):
            raise Nameless if notice == happened(1, Text("x")) else ValueError("no frame")
        read.append(notice)

    monkeypatch.setattr("sys.stderr", Closed())
    outbox = Outbox(write)
    for request in (1, 2, 3):
        outbox.put(happened(request, Text("x")))
    outbox.close(PATIENCE_S)
    bug = "this is a bug in localspec, report it"
    first, second = (
        Failed(n, "Fault", f"{bug} ({why})")
        for n, why in ((1, "Nameless"), (2, "ValueError: no frame"))
    )
    assert read == [first, second, happened(3, Text("x"))]


def test_what_leaves_together_is_flushed_once_and_after_all_of_it(reader: Reader) -> None:
    flushed: list[int] = []
    outbox = Outbox(reader, lambda: flushed.append(len(reader.read)))
    outbox.put(Hello("", 0))
    assert reader.waits.wait(PATIENCE_S)
    for request in range(1, 9):
        outbox.put(happened(request, Text("x")))
    all_of(outbox, reader)
    assert flushed == [1, 9]


def test_where_nothing_is_written_everything_leaves_at_once() -> None:
    read: list[Notice] = []
    outbox = Outbox(read.append)
    notices = [happened(n % 3, Text(str(n))) for n in range(30)] + [Loading("a", 0.1)]
    for number, notice in enumerate(notices, 1):
        outbox.put(notice)
        assert until(lambda: len(read) == number)  # noqa: B023 - called at once
    outbox.close(PATIENCE_S)
    assert read == notices


def test_arguments_that_wait_are_joined_and_never_across_calls(
    outbox: Outbox, reader: Reader
) -> None:
    done = CallDone(ToolCall("1", "f", "{}"))
    told: list[StreamEvent] = [Text("a"), Text("b"), CallBegun("1", "f"), CallDelta("1", "{")]
    told += [CallDelta("1", "}"), done, CallBegun("2", "f"), CallDelta("2", "{")]
    for each in told:
        outbox.put(happened(1, each))
    (notice,) = all_of(outbox, reader)
    assert notice == happened(
        1,
        Text("ab"),
        CallBegun("1", "f"),
        CallDelta("1", "{}"),
        done,
        CallBegun("2", "f"),
        CallDelta("2", "{"),
    )
