"""Passes that cannot be stopped: waited for, and as wide as what the last one took allows."""

import pytest

from localspec.llama.queued import Queued


class Worker:
    """Takes so long for a token, and for each pass; its clock goes on as somebody waits."""

    def __init__(self, token_s: float, pass_s: float = 0.0) -> None:
        self.now_s, self.sent = 0.0, 0
        self.token_s, self.pass_s = token_s, pass_s

    def clock(self) -> float:
        return self.now_s

    def wait(self) -> None:
        self.now_s += self.pass_s + self.sent * self.token_s
        self.sent = 0

    def prompt(self, queued: Queued, tokens: int) -> list[int]:
        """Evaluate a prompt; return its chunks."""
        chunks = []
        while tokens:
            start_s, self.sent = self.now_s, min(tokens, queued.tokens)
            chunks.append(self.sent)
            tokens -= self.sent
            queued.done(chunks[-1], start_s)
            assert not self.sent, "nobody waited"
        return chunks


@pytest.mark.parametrize(
    ("token_s", "chunks"),
    [
        (0.0001, [64, 256, 512, 512, 512]),
        (0.002, [64, 96, 96, 96, 96]),
        (0.02, [64, 32, 32, 32, 32]),
    ],
)
def test_chunks_are_as_wide_as_the_time_for_a_cancel_allows(
    token_s: float, chunks: list[int]
) -> None:
    worker = Worker(token_s)
    queued = Queued(worker.wait, 512, 0.2, worker.clock)
    assert worker.prompt(queued, 4096)[:5] == chunks


def test_the_next_prompt_begins_with_what_is_known() -> None:
    worker = Worker(0.0001)
    queued = Queued(worker.wait, 512, 0.2, worker.clock)
    worker.prompt(queued, 2000)
    assert worker.prompt(queued, 2000)[0] == 512


def test_a_device_that_becomes_slow_gets_less_at_once() -> None:
    worker = Worker(0.0001)
    queued = Queued(worker.wait, 512, 0.2, worker.clock)
    worker.prompt(queued, 2000)
    worker.token_s = 0.001
    assert worker.prompt(queued, 2000)[:3] == [512, 192, 192]


def test_a_short_rest_teaches_nothing_unless_even_that_took_long() -> None:
    worker = Worker(0.0001, pass_s=0.01)
    queued = Queued(worker.wait, 512, 0.2, worker.clock)
    worker.prompt(queued, 2000)
    worker.prompt(queued, 3)
    assert queued.tokens == 512
    worker.token_s = 0.1
    worker.prompt(queued, 3)
    assert queued.tokens == 32


def test_where_nothing_may_depend_on_time_passes_are_waited_for_and_as_wide_as_ever() -> None:
    worker = Worker(0.02)
    queued = Queued(worker.wait, 512, None, worker.clock)
    assert worker.prompt(queued, 1100) == [512, 512, 76]


def test_a_context_smaller_than_a_first_chunk_is_enough() -> None:
    worker = Worker(0.0)
    assert worker.prompt(Queued(worker.wait, 16, 0.2, worker.clock), 40) == [16, 16, 8]
