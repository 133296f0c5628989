"""What leaves, in which order, and how little of it where the reader is slow."""

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
    Counted,
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


def done(at: int) -> RoundDone:
    return RoundDone(Round(Draft(), Verdict(0, at), (at,)), (str(at),))


CALL = CallDone(ToolCall("1", "f", "{}"))


HM = Text("hm", thinking=True)
BEGUN = CallBegun("1", "f")
STARTED = Started(9, 0)


@pytest.mark.parametrize(
    ("put", "left"),
    [
        ([Text("a"), Text("a"), done(1), Text("b")], [Text("aa"), done(1), Text("b")]),
        ([HM, Text("d"), Text("e")], [HM, Text("de")]),
        ([BEGUN, CallDelta("1", "{"), CallDelta("1", "}"), CALL], [BEGUN, CallDelta("1", "{}"), CALL]),
        ([CallDelta("1", "{"), CallDelta("2", "{")], [CallDelta("1", "{"), CallDelta("2", "{")]),
        ([STARTED, Prefilling(1, 9), Prefilling(8, 9), Text("a")], [STARTED, Prefilling(8, 9), Text("a")]),
    ],
)  # fmt: skip
def test_what_waits_of_a_reply_is_joined_and_no_round_is_lost(
    put: list[StreamEvent], left: list[StreamEvent], outbox: Outbox, reader: Reader
) -> None:
    for each in put:  # of two replies, each by itself
        outbox.put(happened(1, each))
        outbox.put(happened(2, each))
    assert all_of(outbox, reader) == [happened(1, *left), happened(2, *left)]


def test_joining_takes_no_longer_the_more_there_is(outbox: Outbox, reader: Reader) -> None:
    took_s = []
    for _ in range(40):
        start_s = time.thread_time()
        for _ in range(200):
            outbox.put(happened(1, done(1)))
            outbox.put(happened(1, Text("x")))
        took_s.append(time.thread_time() - start_s)
    # The quickest of ten each: what else the machine does can slow some of them, and not all.
    assert min(took_s[-10:]) < 4 * min(took_s[:10]), "looking at all would be sixty times"
    (joined,) = all_of(outbox, reader)
    assert isinstance(joined, ReplyEvents)
    assert len(joined.events) == 16_000


def test_of_a_progress_only_the_last_leaves(outbox: Outbox, reader: Reader) -> None:
    for at in range(500):  # of two models at once
        outbox.put(Downloading("a", at, 500, "hub"))
        outbox.put(Downloading("b", 2 * at, 1000, "hub"))
        outbox.put(Loading("a", at / 500))
        outbox.put(Measuring("a", at / 500))
    across: list[Notice] = [Hello("again", 1), Loading("a", 0.1)]
    for each in across:  # nothing is joined across what is no stream
        outbox.put(each)
    assert all_of(outbox, reader) == [
        Downloading("a", 499, 500, "hub"),
        Downloading("b", 998, 1000, "hub"),
        Loading("a", 499 / 500),
        Measuring("a", 499 / 500),
        *across,
    ]


def test_when_the_reader_is_gone_nothing_is_kept_and_nothing_raised() -> None:
    def gone(*_: Notice) -> None:
        raise BrokenPipeError

    for outbox in (Outbox(gone), Outbox(lambda _: None, gone)):
        for _ in range(3):
            outbox.put(Hello("", 0))
        outbox.close(PATIENCE_S)
        outbox.put(Hello("", 0))


class Nameless(ValueError):
    def __str__(self) -> str:
        raise TypeError


class Closed:
    def write(self, text: str) -> None:
        raise OSError("stderr is closed")


def test_what_cannot_be_written_ends_its_own_request_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[Notice] = []
    faults = [FrameError("too large"), ValueError("NaN is no number"), Nameless()]

    def write(notice: Notice) -> None:
        if isinstance(notice, ReplyEvents) and notice.id <= len(faults):
            raise faults[notice.id - 1]
        read.append(notice)

    monkeypatch.setattr("sys.stderr", Closed())
    outbox = Outbox(write)
    for request in (1, 2, 3, 4):
        outbox.put(happened(request, Text("x")))
    outbox.put(Failed(1, "UsageError", "what came later of it"))
    outbox.close(PATIENCE_S)
    bug = "this is a bug in localspec, report it"
    assert read == [
        Failed(1, "FrameError", "too large"),
        Failed(2, "Fault", f"{bug} (ValueError: NaN is no number)"),
        Failed(3, "Fault", f"{bug} (Nameless)"),
        happened(4, Text("x")),
    ]


def test_what_leaves_together_is_flushed_once_and_after_all_of_it(reader: Reader) -> None:
    flushed: list[int] = []
    outbox = Outbox(reader, lambda: flushed.append(len(reader.read)))
    outbox.put(Hello("", 0))
    assert reader.waits.wait(PATIENCE_S)
    for request in range(1, 9):
        outbox.put(happened(request, Text("x")))
    all_of(outbox, reader)
    assert flushed == [1, 9]


def test_where_nothing_waits_everything_leaves_at_once() -> None:
    read: list[Notice] = []
    outbox = Outbox(read.append)
    notices = [happened(n % 3, Text(str(n))) for n in range(30)] + [Loading("a", 0.1)]
    for number, notice in enumerate(notices, 1):
        outbox.put(notice)
        assert until(lambda: len(read) == number)  # noqa: B023 - called at once
    outbox.close(PATIENCE_S)
    assert read == notices


def test_parts_of_a_text_keep_their_pace_and_the_end_of_a_reply_does_not_wait() -> None:
    read: list[Notice] = []
    outbox = Outbox(read.append)
    outbox.pace(2 * PATIENCE_S)
    outbox.put(happened(1, Text("0")))
    assert until(lambda: read)
    for at in range(1, 20):
        outbox.put(happened(1, Text(str(at))))
        time.sleep(0.001)
    outbox.put(Counted(2, 3, 4))
    assert until(lambda: len(read) == 3)
    outbox.close(PATIENCE_S)
    rest = happened(1, Text("".join(map(str, range(1, 20)))))
    assert read == [happened(1, Text("0")), rest, Counted(2, 3, 4)]
    outbox = Outbox(read.append)
    outbox.pace(0.05)
    for text in ("one", "two"):  # though nothing follows it
        outbox.put(happened(1, Text(text)))
        assert until(lambda: read[-1] == happened(1, Text(text)))  # noqa: B023 - called at once
    outbox.close(PATIENCE_S)
