"""Questions for vectors share passes, and each ends by itself: with its rows, cancelled, or with what is wrong with it."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.engine.embedding import EmbeddingQueue, LoadedEmbedder
from localspec.engine.protocol import Count, Embed, Failed, Notice, Vectors
from localspec.errors import ModelLoadError, UsageError
from localspec.messages import Held


class Letters:
    """A text's row is its length, and what its first letter is; passes hold eight letters and three texts."""

    width, longest, most_texts = 2, 20, 3

    def __init__(self, *, ranks: bool = False) -> None:
        self.ranks = ranks
        self.passes_made = list[list[int]]()
        self.before: Callable[[], None] = lambda: None

    def tokens(self, text: str | Sequence[int], *, cut: bool = False) -> list[int]:
        ids = [ord(each) for each in text] if isinstance(text, str) else list(text)
        if len(ids) > self.longest and not cut:
            raise UsageError("too long")
        return ids[: self.longest]

    def pair_tokens(self, query: str, text: str, *, cut: bool = False) -> list[int]:
        return self.tokens(query + text, cut=cut)

    def passes(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        some = list[int]()
        for at, length in enumerate(lengths):
            if some and (sum(lengths[each] for each in some) + length > 8 or len(some) == 3):
                yield some
                some = []
            some.append(at)
        if some:
            yield some

    def pooled(self, texts: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        self.before()
        self.passes_made.append([len(each) for each in texts])
        return np.array([[len(each), each[0]] for each in texts], np.float32)

    def close(self) -> None:
        self.width = 0


class Asked:
    def __init__(self, *, ranks: bool = False) -> None:
        self.model, self.flag, self.sent = Letters(ranks=ranks), CancelFlag(), list[Notice]()
        loaded = LoadedEmbedder(self.model, self.flag, "letters", 0.5, Held({"RAM": 7}))
        self.embedding = EmbeddingQueue(loaded, self.sent.append)

    def ask(self, number: int, *texts: str | tuple[int, ...], **more: Any) -> None:
        self.embedding.submit(Embed(number, texts, **more))

    def end(self, number: int) -> Notice:
        """Go on until nothing is left, and return the answer to a question."""
        while self.embedding.busy:
            self.embedding.step()
        (found,) = (each for each in self.sent if getattr(each, "id", None) == number)
        return found

    def rows(self, number: int) -> list[list[float]]:
        found = self.end(number)
        assert isinstance(found, Vectors), found
        return np.frombuffer(found.rows, np.float32).reshape(-1, found.width).tolist()

    def reason(self, number: int) -> str:
        found = self.end(number)
        assert isinstance(found, Failed), found
        return found.reason


def test_texts_of_several_questions_share_passes_and_each_gets_its_own_rows_in_order() -> None:
    asked = Asked()
    asked.ask(1, "cccc", "a", "bb")
    asked.ask(2, "d", (101, 7, 7))
    assert asked.rows(1) == [[4, ord("c")], [1, ord("a")], [2, ord("b")]]
    assert asked.rows(2) == [[1, ord("d")], [3, 101]]
    assert sum(map(len, asked.model.passes_made)) == 5
    assert len(asked.model.passes_made) <= 3
    ready = asked.embedding.ready
    assert (ready.target, ready.n_ctx, ready.load_s) == ("letters", 20, 0.5)
    assert ready.held.places == {"RAM": 7}


def test_a_small_question_does_not_wait_for_a_large_one() -> None:
    asked = Asked()
    asked.ask(1, *["xxxxxxxx"] * 40)
    asked.ask(2, "y")
    asked.embedding.step()
    asked.embedding.step()
    assert isinstance(asked.sent[-1], Vectors)
    assert asked.sent[-1].id == 2
    assert len(asked.rows(1)) == 40


def test_a_question_can_be_cancelled_in_the_middle_of_a_pass_and_others_go_on() -> None:
    asked = Asked()
    asked.ask(1, "aa", "bb")
    asked.ask(2, "c")

    def gone() -> None:
        asked.embedding.cancel(1)
        asked.model.before = lambda: None
        if asked.flag.is_set:
            raise Cancelled

    asked.model.before = gone
    assert asked.rows(2) == [[1, ord("c")]]
    assert "cancelled" in asked.reason(1)
    asked.embedding.cancel(99)  # what has ended, or never was
    asked.ask(3, "e")
    assert asked.rows(3) == [[1, ord("e")]]

    def stopped() -> None:
        asked.flag.set()
        raise Cancelled

    asked.ask(4, "f")
    asked.model.before = stopped
    asked.embedding.step()
    assert not asked.embedding.busy
    assert "stops" in asked.reason(4)


def test_a_cancelled_question_interrupts_no_pass_that_others_need() -> None:
    # What shares the pass; what waits; all of the pass.
    for others, cancelled, stops in [((2,), 1, False), ((2,), 3, False), ((), 1, True)]:
        asked, seen = Asked(), list[bool]()

        def gone(asked: Asked = asked, number: int = cancelled, seen: list[bool] = seen) -> None:
            asked.embedding.cancel(number)
            seen.append(asked.flag.is_set)
            asked.model.before = lambda: None

        asked.ask(1, "aa")
        for other in others:
            asked.ask(other, "c")
        asked.ask(3, "xxxxxxxx")
        asked.model.before = gone
        for other in others:
            assert asked.rows(other) == [[1, ord("c")]]
        assert "cancelled" in asked.reason(cancelled)
        assert seen == [stops]


def test_what_is_wrong_with_one_question_ends_no_other() -> None:
    asked = Asked()

    def fails() -> None:
        asked.model.before = lambda: None
        raise ModelLoadError("it takes 9 GB")

    asked.model.before = fails
    asked.ask(1, "x" * 9)
    asked.ask(2, "y")
    assert asked.rows(2) == [[1, ord("y")]]
    assert asked.reason(1) == "it takes 9 GB"
    with pytest.raises(UsageError, match="too long"):
        asked.ask(3, "x" * 21)
    asked.ask(4, "x" * 21, cut=True)
    assert asked.rows(4) == [[20, ord("x")]]
    with pytest.raises(UsageError, match="makes vectors, and ranks no texts"):
        asked.ask(5, "x", query="q")
    with pytest.raises(UsageError, match="for embeddings only"):
        asked.embedding.answer(Count(6, ()))
    asked.ask(7, "x")
    asked.embedding.abandon(ValueError("a fault"))
    assert "this is a bug" in asked.reason(7)
    asked.embedding.close()
    assert asked.model.width == 0


def test_a_ranker_wants_a_question() -> None:
    asked = Asked(ranks=True)
    with pytest.raises(UsageError, match="ranks texts by a question"):
        asked.ask(1, "x")
    asked.ask(2, "x", "yy", query="q")
    assert asked.rows(2) == [[2, ord("q")], [3, ord("q")]]
