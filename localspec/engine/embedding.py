"""EmbeddingQueue: texts become vectors or scores, those of several questions in a pass, as the protocol's notices."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.chat.request import Request
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.round import OFF
from localspec.engine.protocol import Count, Detokenize, Embed, Notice, Ready, Tokenize, Vectors
from localspec.engine.request_runner import failure
from localspec.errors import LocalspecError, UsageError
from localspec.messages import Held

Rows = NDArray[np.float32]


class Embeds(Protocol):
    """A model that makes vectors, or scores; see `llama.embedder`."""

    ranks: bool
    width: int
    longest: int
    most_texts: int

    def tokens(self, text: str | Sequence[int], *, cut: bool = False) -> list[int]:
        """Return the tokens of a text; raises LocalspecError where there is no vector of it."""

    def pair_tokens(self, query: str, text: str, *, cut: bool = False) -> list[int]:
        """Return the tokens of a question and what may answer it; raises LocalspecError where there is no score."""

    def passes(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Yield which texts go into a pass, by their lengths in tokens."""

    def pooled(self, texts: Sequence[Sequence[int]]) -> Rows:
        """Return a row of each text of a pass; raises Cancelled where the flag was set, and LocalspecError."""

    def close(self) -> None:
        """Free the model."""


@dataclass(slots=True, eq=False)
class _Running:
    """A question that is being answered.

    Args:
        texts: the tokens of each.
        rows: of each, as far as they are made.
        left: texts that no pass had yet, the longest first: those of like length fill passes best.
    """

    texts: Sequence[Sequence[int]]
    rows: Rows
    left: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.left = sorted(range(len(self.texts)), key=lambda at: -len(self.texts[at]))


@dataclass(frozen=True, slots=True, eq=False)
class LoadedEmbedder:
    """A model that was loaded to make vectors.

    Args:
        model: makes them.
        cancel: stops its passes.
        name: how the user calls it.
        load_s: seconds that loading took.
        held: the memory that it holds.
        check: raises ModelChanged where its file was written over.
    """

    model: Embeds
    cancel: CancelFlag
    name: str
    load_s: float
    held: Held
    check: Callable[[], None] = lambda: None


class EmbeddingQueue:
    """Answers `Embed`; a child has it in place of an `RequestRunner`.

    Args:
        loaded: the model.
        send: sends a notice to the client; never waits.
    """

    def __init__(self, loaded: LoadedEmbedder, send: Callable[[Notice], None]) -> None:
        self.target_name = loaded.name
        self._model = loaded.model
        self._flag = loaded.cancel
        self._loaded = loaded
        self._send = send
        self._under_way: dict[int, _Running] = {}
        self._turns = deque[int]()
        self._cancelled = set[int]()
        self._passing = frozenset[int]()  # whose texts are in the pass that runs

    @property
    def ready(self) -> Ready:
        """What clients get to know of what is loaded."""
        n_ctx, loaded = self._model.longest, self._loaded
        return Ready(loaded.name, None, OFF, n_ctx, (), loaded.load_s, False, loaded.held)

    @property
    def busy(self) -> bool:
        """Whether something is being answered."""
        return bool(self._under_way)

    def submit(self, question: Request | Embed) -> None:
        """Have a question answered."""
        if isinstance(question, Request):
            self.answer(question)
        self._loaded.check()
        model, query = self._model, question.query
        if model.ranks != (query is not None):
            raise UsageError(
                f"{self.target_name} ranks texts by a question, and makes no vectors: choose an embedding model"
                if model.ranks
                else f"{self.target_name} makes vectors, and ranks no texts: choose a reranker"
            )
        texts = [
            model.tokens(each, cut=question.cut)
            if query is None
            else model.pair_tokens(query, each if isinstance(each, str) else "", cut=question.cut)
            for each in question.texts
        ]
        self._under_way[question.id] = _Running(
            texts, np.zeros((len(texts), model.width), np.float32)
        )
        self._turns.append(question.id)

    def cancel(self, number: int) -> None:
        """End one question; any thread may call it. A pass that others share is finished: they would have to begin again."""
        self._cancelled.add(number)
        if self._passing and self._passing <= self._cancelled:
            self._flag.interrupt()

    def step(self) -> None:
        """Make a pass: for the question whose turn it is, and for others as far as there is room."""
        self._flag.resume()
        self._end_cancelled()
        if self._turns:
            self._pass(self._chosen())

    def _end_cancelled(self) -> None:
        while self._cancelled:
            if (number := self._cancelled.pop()) in self._under_way:
                self._end(number, UsageError("the request was cancelled"))

    def _pass(self, chosen: Sequence[tuple[int, int]]) -> None:
        questions = self._passing = frozenset(number for number, _ in chosen)
        try:
            rows = self._model.pooled([self._under_way[one].texts[at] for one, at in chosen])
        except Cancelled:
            for number, at in reversed(chosen):
                self._under_way[number].left.append(at)
            if self._flag.stops_all:
                self.abandon(UsageError("the engine stops"))
            return
        except LocalspecError as error:
            for number in questions:
                self._end(number, error)
            return
        finally:
            self._passing = frozenset()
        for (number, at), row in zip(chosen, rows, strict=True):
            self._under_way[number].rows[at] = row
        self._turns.rotate(-1)
        self._end_cancelled()
        for number in questions & self._under_way.keys():
            if not self._under_way[number].left:
                self._end(number)

    def _chosen(self) -> list[tuple[int, int]]:
        """Take the texts of a pass: the number of the question of each, and which of its texts it is."""
        waiting = (
            (number, at) for number in self._turns for at in reversed(self._under_way[number].left)
        )
        first = list(islice(waiting, self._model.most_texts))
        lengths = [len(self._under_way[number].texts[at]) for number, at in first]
        chosen = [first[at] for at in next(self._model.passes(lengths))]
        for number, _ in chosen:
            self._under_way[number].left.pop()
        return chosen

    def abandon(self, error: Exception) -> None:
        """End everything that is being answered without an answer."""
        for number in list(self._under_way):
            self._end(number, error)

    def _end(self, number: int, error: Exception | None = None) -> None:
        job = self._under_way.pop(number)
        self._turns.remove(number)
        if error is not None:
            self._send(failure(number, error))
            return
        tokens = sum(map(len, job.texts))
        self._send(Vectors(number, job.rows.tobytes(), self._model.width, tokens))

    def answer(self, _question: Request | Count | Tokenize | Detokenize) -> NoReturn:
        """Raise UsageError: there is none."""
        raise UsageError(f"{self.target_name} was loaded for embeddings only")

    def close(self) -> None:
        """Free the model."""
        self._model.close()
