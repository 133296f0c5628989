"""Embeddings: vectors of texts and scores, by models beside those that write, each loaded with the first request for it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from localspec.api import UsageError
from localspec.engine.protocol import Embed
from localspec.plugins.serve.answering import Service

MOST_TEXTS = 2048
"""Of a request; as OpenAI has it."""
_PART = 256
"""Texts that the engine is asked at once: rows of more may not fit its frame."""

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


async def embed(
    service: Service,
    name: str,
    texts: Sequence[Text],
    *,
    query: str | None = None,
    dimensions: int | None = None,
    cut: bool = False,
) -> Embedded:
    """Return a vector of each text; cancelled, it stops the work within a pass.

    Args:
        service: has the models.
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
    model = service.catalogue.embedder(name, ranks=query is not None)
    given = tuple(each if isinstance(each, str) else tuple(each) for each in texts)
    async with replace(service, model=model).use() as backend:
        parts = [
            await backend.vectors(Embed(0, given[at : at + _PART], query, cut))
            for at in range(0, len(given), _PART)
        ]
    width = parts[0].width
    rows = np.frombuffer(b"".join(each.rows for each in parts), np.float32).reshape(-1, width)
    if query is None:
        rows = _of_length_1(rows, width if dimensions is None else dimensions)
    return Embedded(name or model.name, rows, sum(each.tokens for each in parts))


def _of_length_1(rows: NDArray[np.float32], dimensions: int) -> NDArray[np.float32]:
    if not 1 <= dimensions <= rows.shape[1]:
        raise UsageError(
            f"dimensions is {dimensions}, and the model's vectors have {rows.shape[1]}: give 1 to {rows.shape[1]}"
        )
    rows = rows[:, :dimensions]
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: NDArray[np.float32] = rows / np.maximum(lengths, np.finfo(np.float32).tiny)
    return unit
