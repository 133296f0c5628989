"""What leaves, in which order, and how little of it where nobody reads."""

import threading
import time

import pytest

from localspec.engine.outbox import Outbox
from localspec.engine.protocol import (
    Downloading,
    Hello,
    LensToken,
    Loading,
    Notice,
    Prefilling,
    RoundFigures,
    Span,
    Streamed,
)


class Reader:
    """Reads once it is allowed to."""

    def __init__(self) -> None:
        self.read: list[Notice] = []
        self.reads = threading.Event()
        self.waits = threading.Event()

    def __call__(self, message: Notice) -> None:
        self.waits.set()
        assert self.reads.wait(30)
        self.read.append(message)


@pytest.fixture
def reader() -> Reader:
    return Reader()


@pytest.fixture
def outbox(reader: Reader) -> Outbox:
    """An outbox that is held up by its first message."""
    outbox = Outbox(reader)
    outbox.put(Hello("", 0))
    assert reader.waits.wait(30)
    return outbox


def all_of(outbox: Outbox, reader: Reader) -> list[Notice]:
    """Let everything through, and return what came after the first message."""
    reader.reads.set()
    outbox.close(30)
    return reader.read[1:]


def test_text_that_waits_is_joined(outbox: Outbox, reader: Reader) -> None:
    figures = RoundFigures("off", 0, 0, 1, 0.0, 0.0, 0.0)
    for letter in "abc":
        outbox.put(Streamed(1, (Span(letter),), (LensToken(letter, "plain"),), (figures,)))
    outbox.put(Streamed(1, (Span("hm", thinking=True), Span("d")), (), ()))
    (joined,) = all_of(outbox, reader)
    assert joined == Streamed(
        1,
        (Span("abc"), Span("hm", thinking=True), Span("d")),
        tuple(LensToken(letter, "plain") for letter in "abc"),
        (figures,) * 3,
    )


def test_of_a_progress_only_the_last_is_told(outbox: Outbox, reader: Reader) -> None:
    for done in range(5000):  # of two models at once
        outbox.put(Downloading("a", done, 5000, "hub"))
        outbox.put(Downloading("b", 2 * done, 10_000, "hub"))
    for done in range(100):
        outbox.put(Loading("a", done / 100))
        outbox.put(Prefilling(1, done, 100))
    assert all_of(outbox, reader) == [
        Downloading("a", 4999, 5000, "hub"),
        Downloading("b", 9998, 10_000, "hub"),
        Loading("a", 0.99),
        Prefilling(1, 99, 100),
    ]


def test_nothing_is_joined_across_what_is_no_stream(outbox: Outbox, reader: Reader) -> None:
    told: list[Notice] = [
        Streamed(1, (Span("a"),)),
        Hello("again", 1),
        Streamed(1, (Span("b"),)),
        Streamed(2, (Span("c"),)),
    ]
    for message in told:
        outbox.put(message)
    assert all_of(outbox, reader) == told


def test_where_nobody_is_left_nothing_is_kept_and_nothing_raised() -> None:
    def gone(_: Notice) -> None:
        raise BrokenPipeError

    outbox = Outbox(gone)
    for _ in range(3):
        outbox.put(Hello("", 0))
    outbox.close(30)
    outbox.put(Hello("", 0))


def test_the_first_text_leaves_at_once_and_what_is_no_stream_does_not_wait() -> None:
    read: list[tuple[float, Notice]] = []
    outbox = Outbox(lambda message: read.append((time.monotonic(), message)))
    for index in range(300):
        outbox.put(Streamed(1, (Span("x"),)))
        time.sleep(0.001)
        if index == 0:
            assert wait_for(lambda: len(read) == 1)
    outbox.put(Hello("", 0))
    outbox.close(30)
    streams = [at for at, message in read if isinstance(message, Streamed)]
    # The first, and the last, which leaves together with what is urgent, come beside the others.
    assert 3 <= len(streams) <= 15 * (streams[-1] - streams[0]) + 2
    assert isinstance(read[-1][1], Hello)
    text = "".join(s.text for _, m in read if isinstance(m, Streamed) for s in m.spans)
    assert text == "x" * 300


def wait_for(holds: object) -> bool:
    assert callable(holds)
    end_s = time.monotonic() + 30
    while not holds() and time.monotonic() < end_s:
        time.sleep(0.001)
    return bool(holds())
