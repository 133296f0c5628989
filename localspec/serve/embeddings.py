"""Embeddings: a model for vectors beside the one that writes, in an engine of its own, loaded with the first request for it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localspec.engine.engine import RemoteEngine
from localspec.engine.protocol import Embed, EngineDied, Load, Notice
from localspec.errors import UsageError
from localspec.options import LaunchOptions
from localspec.serve.backend import Backend
from localspec.serve.catalogue import Catalogue
from localspec.serve.residence import Residence

MOST_TEXTS = 2048
"""Of a request; as OpenAI has it."""

Text = str | Sequence[int]


@dataclass(frozen=True, slots=True, eq=False)
class Embedded:
    """Rows of texts.

    Args:
        model: that made them.
        rows: of each text, shape (texts, width), of length 1; scores are as the model has them, of width 1.
        tokens: of all texts.
    """

    model: str
    rows: NDArray[np.float32]
    tokens: int


class Embeddings:
    """Makes vectors of texts, or scores.

    Args:
        catalogue: the models that requests may name.
        keep_alive_s: see `Residence`.
        most: requests that may run or wait; one more is refused.
        max_wait_s: how long a request may wait for its model; None lets it wait.
        notify: gets why an engine died.
        engine: loads them; a child of its own, unless another one is given.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        keep_alive_s: float | None,
        most: int,
        max_wait_s: float | None = None,
        notify: Callable[[str], None] = lambda _reason: None,
        engine: RemoteEngine | None = None,
    ) -> None:
        def watch(notice: Notice) -> None:
            if isinstance(notice, EngineDied):
                notify(notice.reason)

        engine = engine or RemoteEngine(settings=Load(embeds=True), watch=watch, revives=True)
        self._catalogue = catalogue
        self._backend = Backend(engine, LaunchOptions(), most)
        self._residence = Residence(self._backend, None, keep_alive_s, most, max_wait_s)

    @property
    def under_way(self) -> int:
        """Requests that run or wait."""
        return self._backend.under_way + self._residence.waiting

    async def embed(
        self,
        name: str,
        texts: Sequence[Text],
        *,
        query: str | None = None,
        dimensions: int | None = None,
        cut: bool = False,
    ) -> Embedded:
        """Return a vector of each text; cancelled, it stops the work within a pass.

        Args:
            name: of the model; empty takes the first on the disk that does nothing else.
            texts: each a text, to which nothing is added but what the model's file wants, or its ids.
            query: what the texts may answer: then a model that ranks gives a score to each.
            dimensions: leave out all numbers of a vector but so many, the first.
            cut: leave out what is longer than the model takes, instead of refusing it.

        Raises:
            NotFound: there is no such model, or it is not on the disk.
            ContextOverflow: a text is too long.
            UsageError: there are no texts, or too many; or the model does not do that.
            Busy, WaitedTooLong, EngineGone, LocalspecError: as `Backend.answers`.
        """
        if not 1 <= len(texts) <= MOST_TEXTS:
            raise UsageError(f"{len(texts)} texts are given: give 1 to {MOST_TEXTS}")
        model = self._catalogue.embedder(name, ranks=query is not None)
        question = Embed(
            0, tuple(each if isinstance(each, str) else tuple(each) for each in texts), query, cut
        )
        async with self._residence.use(model):
            vectors = await self._backend.vectors(question)
        rows = np.frombuffer(vectors.rows, np.float32).reshape(len(texts), vectors.width)
        if query is None:
            rows = _of_length_1(rows, dimensions or vectors.width)
        return Embedded(model.name, rows, vectors.tokens)

    async def close(self) -> None:
        """End the engine, and at once what still waits."""
        await self._backend.close()


def _of_length_1(rows: NDArray[np.float32], dimensions: int) -> NDArray[np.float32]:
    if not 1 <= dimensions <= rows.shape[1]:
        raise UsageError(
            f"dimensions is {dimensions}, and the model's vectors have {rows.shape[1]}: give 1 to {rows.shape[1]}"
        )
    rows = rows[:, :dimensions]
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: NDArray[np.float32] = rows / np.maximum(lengths, np.finfo(np.float32).tiny)
    return unit
