"""Embedding: the model that makes an index's vectors, the vectors that are missing, and those nearest to a question's."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from localspec.errors import ModelLoadError, UsageError
from localspec.models.entries import Embedding, ModelEntry
from localspec.models.ledger import IMPORTS
from localspec.models.names import look_up
from localspec.models.registry import load_registry
from localspec.models.store import Store
from localspec.models.transfer import Progress
from localspec.options import LoadOptions
from localspec.retrieval.index import Index, VectorModel
from localspec.storage.paths import data_dir, shown

if TYPE_CHECKING:
    from localspec.llama.embedder import Embedder

_AT_ONCE = 64
"""Passages whose vectors are made for one transaction: what a kill may cost."""

Vectors = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class TextVectors:
    """Makes vectors of texts as a model wants them.

    Args:
        embedder: the model.
        before: what it wants before each text.
    """

    embedder: "Embedder"
    before: Embedding

    def of_question(self, text: str) -> Vectors:
        """Return the vector of a question."""
        vector: Vectors = self.embedder.vectors([self.before.query + text])[0]
        return vector

    def of_passages(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of what may answer questions."""
        return self.embedder.vectors([self.before.passage + each for each in texts])


def vector_model(
    name: str, *, offline: bool = False, progress: Callable[[Progress], None] = lambda _: None
) -> VectorModel:
    """Return the model that a name means, fetched if it is not here.

    Raises:
        ModelUnavailable: there is none of this name, or it cannot be fetched.
        UsageError: it is a file that has no name.
    """
    registry = load_registry()
    model = look_up(name, registry, offline=offline)
    if isinstance(model, Path):
        entry = IMPORTS.load(data_dir()).get(registry.aliases.get(name, name))
        if entry is None:
            raise UsageError(
                f"{shown(model)} has no name that an index could keep: give it one, `localspec import {shown(model)}`"
            )
        return VectorModel(entry.name, entry.sha256)
    # Few choices have something to fetch.
    from localspec.models.pull import fetch  # noqa: PLC0415

    fetch([model], offline=offline, progress=progress)
    return VectorModel(model.full_name, model.sha256)


def is_here(model: VectorModel) -> bool:
    """Return whether the very file that made the vectors of an index is on this machine."""
    return _file(model) is not None


def text_vectors(model: VectorModel) -> TextVectors | None:
    """Return what makes vectors like those of an index; None where the model's very file is not here any more.

    Raises:
        ModelLoadError: llama.cpp cannot load it.
    """
    file = _file(model)
    return file and TextVectors(_embedder(file[0]), file[1].embedding or Embedding())


def _file(model: VectorModel) -> tuple[Path, ModelEntry] | None:
    registry, store = load_registry(), Store(data_dir())
    for entry in (IMPORTS.load(store.root).get(model.name), registry.find(model.name)):
        path = store.path_of(entry) if entry and entry.sha256 == model.sha256 else None
        if entry is not None and path is not None:
            return path, entry
    return None


@lru_cache(maxsize=2)  # a server may have indexes of different models
def _embedder(path: Path) -> "Embedder":
    from localspec.llama.embedder import Embedder  # noqa: PLC0415 - few indexes have vectors
    from localspec.llama.model import LlamaModel  # noqa: PLC0415
    from localspec.models.gguf import read_header  # noqa: PLC0415

    read_header(path)  # an import is the user's own file, which may be damaged by now
    embedder = Embedder(LlamaModel(path, LoadOptions()))
    if embedder.ranks:
        embedder.close()
        raise ModelLoadError(f"{path} ranks texts, and makes no vectors: choose an embedding model")
    return embedder


def embed(index: Index, report: Callable[[int, int], None] = lambda _done, _total: None) -> int:
    """Make the vectors that an index lacks, and return how many; after a kill the next call goes on.

    Args:
        index: the index; without a model nothing is done.
        report: progress callback: how many are made, of how many.

    Raises:
        UsageError: the model is not here any more, or another one was chosen meanwhile.
        LocalspecError: the index cannot be written.
    """
    model, total = index.vector_model(), index.count_without_vector()
    if model is None or not total:
        return 0
    make = text_vectors(model)
    if make is None:
        raise UsageError(
            f"{model.name}, which made the vectors of this index, is not on this machine: `localspec pull {model.name}`"
        )
    done = last = 0
    while passages := index.without_vector(last, _AT_ONCE):
        texts = [f"{name} {heading}\n{text}" for _, name, heading, text in passages]
        vectors = make.of_passages(texts).astype(np.float16)
        with index.writing():
            now = index.vector_model()
            if now is None or now.sha256 != model.sha256:
                raise UsageError(
                    f"another model than {model.name} was chosen for this index meanwhile: run `localspec index update {index.path.stem}`"
                )
            done += sum(map(index.put_vector, passages, map(bytes, vectors)))
        last = passages[-1][0]
        report(done, total)
    return done


@dataclass(frozen=True, slots=True, eq=False)
class VectorTable:
    """The vectors of an index, read once.

    Args:
        path: of the index.
        version: see `Index.vector_version`.
        passages: their numbers.
        rows: their vectors, shape (passages, width); float32, which numpy multiplies five times as fast as float16.
    """

    path: Path
    version: int
    passages: NDArray[np.int64]
    rows: Vectors


_last_table: list[VectorTable] = []
"""At most one: that of the last question."""


def vector_table(index: Index) -> VectorTable:
    """Return the vectors of an index, read again only where they have changed; inside `reading`."""
    version = index.vector_version()
    for table in _last_table:
        if (table.path, table.version) == (index.path, version):
            return table
    _last_table.clear()
    passages, data = list[int](), bytearray()
    for passage, row in index.vectors():
        passages.append(passage)
        data += row
    rows = np.frombuffer(data, np.float16).reshape(len(passages), -1 if passages else 0)
    table = VectorTable(index.path, version, np.array(passages, np.int64), rows.astype(np.float32))
    _last_table[:] = [table]
    return table


def nearest(index: Index, vector: Vectors, most: int) -> list[tuple[int, float]]:
    """Return the numbers of the passages whose vectors are nearest to one of length 1, each with its cosine; inside `reading`."""
    table = vector_table(index)
    if not table.passages.size:
        return []
    scores = table.rows @ vector
    best = np.argsort(-scores, kind="stable")[:most]
    return [(int(table.passages[at]), float(scores[at])) for at in best]
