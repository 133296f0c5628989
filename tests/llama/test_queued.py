"""Passes that cannot be stopped: waited for, and as wide as what the last one took allows."""

import pytest

from localspec.llama.queued import Queued


class Worker:
    """Takes so long for a token, and for each pass; its clock goes on while it is waited for."""

    def __init__(
        self, token_s: float, pass_s: float = 0.0, most: int = 512, within_s: float | None = 0.2
    ) -> None:
        self.now_s, self.sent, self.token_s, self.pass_s = 0.0, 0, token_s, pass_s
        self.queued = Queued(self.wait, most, within_s, lambda: self.now_s)

    def wait(self) -> None:
        self.now_s += self.pass_s + self.sent * self.token_s
        self.sent = 0

    def prompt(self, tokens: int) -> list[int]:
        """Evaluate a prompt; return its chunks."""
        chunks = []
        while tokens:
            start_s, self.sent = self.now_s, min(tokens, self.queued.tokens)
            chunks.append(self.sent)
            tokens -= self.sent
            self.queued.done(chunks[-1], start_s)
            assert not self.sent, "it was not waited for"
        return chunks


@pytest.mark.parametrize(
    ("token_s", "chunks"),
    [
        (0.0001, [64, 256, 512, 512, 512]),
        (0.002, [64, 96, 96, 96, 96]),
        (0.02, [64, 32, 32, 32, 32]),
    ],
)
def test_chunks_are_as_wide_as_a_cancel_allows(token_s: float, chunks: list[int]) -> None:
    assert Worker(token_s).prompt(4096)[:5] == chunks


def test_the_next_prompt_begins_with_what_is_known_and_a_slow_device_gets_less_at_once() -> None:
    worker = Worker(0.0001)
    worker.prompt(2000)
    assert worker.prompt(2000)[0] == 512
    worker.token_s = 0.001
    assert worker.prompt(2000)[:3] == [512, 192, 192]


def test_a_short_rest_teaches_nothing_unless_even_that_took_long() -> None:
    worker = Worker(0.0001, pass_s=0.01)
    worker.prompt(2000)
    worker.prompt(3)
    assert worker.queued.tokens == 512
    worker.token_s = 0.1
    worker.prompt(3)
    assert worker.queued.tokens == 32


def test_chunks_are_whole_where_nothing_may_depend_on_time_or_the_context_is_small() -> None:
    assert Worker(0.02, within_s=None).prompt(1100) == [512, 512, 76]
    assert Worker(0.0, most=16).prompt(40) == [16, 16, 8]
