"""Embedding: the model that makes an index's vectors, loaded once in a process, and the vectors that are missing."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.errors import UsageError
from localspec.models.entries import Embedding, ModelEntry
from localspec.models.names import load_imports, look_up
from localspec.models.registry import load_registry
from localspec.models.store import Store
from localspec.models.transfer import Progress
from localspec.options import LoadOptions
from localspec.retrieval.index import Index
from localspec.retrieval.vector_table import FilePart, VectorModel
from localspec.retrieval.vectors import Codes, Vector, Vectors, encoded, signs_of
from localspec.storage.paths import data_dir, shown

if TYPE_CHECKING:
    from localspec.llama.embedder import Embedder

_AT_ONCE = 64
"""Passages, about, whose vectors are made for one transaction."""


@dataclass(frozen=True, slots=True, eq=False)
class TextVectors:
    """Makes vectors of texts as a model wants them.

    Args:
        embedder: the model.
        before: what it wants before each text.
    """

    embedder: "Embedder"
    before: Embedding

    def of_question(self, text: str) -> Vector:
        """Return the vector of a question."""
        found: Vector = self.embedder.vectors([self.before.query + text])[0]
        return found

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
    found = look_up(name, registry, offline=offline)
    if isinstance(found, Path):
        entry = load_imports(data_dir()).get(registry.aliases.get(name, name))
        if entry is None:
            raise UsageError(
                f"{shown(found)} has no name that an index could keep: give it one, `localspec import {shown(found)}`"
            )
        return VectorModel(entry.name, entry.sha256)
    # Few choices have something to fetch.
    from localspec.models.pull import fetch  # noqa: PLC0415

    fetch([found], offline=offline, progress=progress)
    return VectorModel(found.full_name, found.sha256)


def is_here(model: VectorModel) -> bool:
    """Return whether the very file that made the vectors of an index is on this machine."""
    return _file(model) is not None


def text_vectors(model: VectorModel) -> TextVectors | None:
    """Return what makes vectors like those of an index; None where the model's very file is not here any more.

    Raises:
        ModelLoadError: llama.cpp cannot load it.
    """
    found = _file(model)
    return found and TextVectors(_embedder(found[0]), found[1].embedding or Embedding())


def _file(model: VectorModel) -> tuple[Path, ModelEntry] | None:
    registry, store = load_registry(), Store(data_dir())
    for entry in (load_imports(store.root).get(model.name), registry.find(model.name)):
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
    return Embedder(LlamaModel(path, LoadOptions()))


def embed(index: Index, report: Callable[[int, int], None] = lambda _done, _total: None) -> int:
    """Make the vectors that an index lacks, and return how many; what is killed goes on the next time.

    Args:
        index: the index; without a model nothing is done.
        report: is told how many are made, of how many.

    Raises:
        UsageError: the model is not here any more, or another one was chosen meanwhile.
        LocalspecError: the index cannot be written.
    """
    model = index.vector_model()
    if model is None:
        return 0
    with index.reading():
        wanting = index.vectors.wanting()
    if not wanting:
        return 0
    make = text_vectors(model)
    if make is None:
        raise UsageError(
            f"{model.name}, which made the vectors of this index, is not on this machine: `localspec pull {model.name}`"
        )
    done, total = 0, sum(each.passages for each in wanting)
    for some in _batches(wanting):
        with index.reading():
            texts = [index.vectors.texts(each) for each in some]
        vectors = make.of_passages([text for each in texts for text in each])
        _write(index, model, some, [len(each) for each in texts], encoded(vectors))
        done += sum(map(len, texts))
        report(done, total)
    return done


def _write(
    index: Index,
    model: VectorModel,
    parts: Sequence[FilePart],
    counts: Sequence[int],
    codes: Codes,
) -> None:
    start = 0
    with index.writing():
        if not index.vectors.is_of(model):
            raise UsageError(
                f"another model than {model.name} was chosen for this index meanwhile: run `localspec index update {index.path.stem}`"
            )
        for part, count in zip(parts, counts, strict=True):
            its = codes[start : start + count]
            if count == part.passages:  # else the file was another one when its texts were read
                index.vectors.put(part, its.tobytes(), signs_of(its).tobytes())
            start += count


def _batches(parts: Sequence[FilePart]) -> Iterator[list[FilePart]]:
    some, size = list[FilePart](), 0
    for each in parts:
        some.append(each)
        size += each.passages
        if size >= _AT_ONCE:
            yield some
            some, size = [], 0
    if some:
        yield some
