"""Recall: `python -m lab.retrieval.measure recall FOLDER` asks the index a hundred questions over texts that it makes in FOLDER."""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path, PurePath
from statistics import mean

from lab.retrieval import corpus
from localspec.retrieval.embedding import embed, vector_model
from localspec.retrieval.index import FoundPassage, Index
from localspec.retrieval.search import by_vectors, search
from localspec.retrieval.update import add

QUESTIONS = Path(__file__).with_name("questions.tsv")
_MOST = 20

Way = Callable[[str, int], list[FoundPassage]]


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the passage that answers it.

    Args:
        file: that it is in, relative to the folder of texts.
        said: words that stand in it.
        text: what is asked.
    """

    file: str
    said: str
    text: str

    @property
    def named(self) -> str:
        """The question of somebody who knows which program or module it is about."""
        name = PurePath(self.file).stem.replace("-", " ")
        return f"{name}: {self.text}"

    def is_answered_by(self, found: FoundPassage, folder: Path) -> bool:
        """Return whether a passage is the known one."""
        return found.path == folder / self.file and _plain(self.said) in _plain(found.passage.text)


def questions() -> list[Question]:
    """Return all questions."""
    return [Question(*line.split("\t")) for line in QUESTIONS.read_text().splitlines()]


def rank(found: Sequence[FoundPassage], asked: Question, folder: Path) -> int:
    """Return at which place from 1 on the known passage is found; 0 where it is not."""
    return next((at for at, each in enumerate(found, 1) if asked.is_answered_by(each, folder)), 0)


def recall(folder: Path, *, lists: bool, vectors: str | None) -> None:
    """Print the share of questions whose passage is among the first ones.

    Args:
        folder: of the texts; made where it is not there.
        lists: whether to print the questions whose passage is not among the first five.
        vectors: a model, whose vectors are made and searched, too; None without.
    """
    folder = folder.resolve()
    if not folder.exists():
        corpus.make(folder)
    with (
        tempfile.TemporaryDirectory() as place,
        closing(Index(Path(place) / "i" / "x.db", make=True)) as index,
    ):
        add(index, [folder])
        contents = index.contents()
        print(f"{contents.files} files, {contents.passages} passages")
        ways: dict[str, Way] = {"words": index.search}
        if vectors is not None:
            _embed(index, vectors)
            ways |= {"vectors": partial(by_vectors, index), "both": partial(search, index)}
        asked = [each for each in questions() if _is_here(each, folder)]
        for form, (way, find) in product(("named", "text"), ways.items()):
            begun_s = time.perf_counter()
            ranks = [(each, rank(find(getattr(each, form), _MOST), each, folder)) for each in asked]
            taken_s = (time.perf_counter() - begun_s) / len(asked)
            for kind in ("man", "python", ""):
                some = [at for each, at in ranks if each.file.startswith(kind)]
                shares = (mean(0 < at <= most for at in some) for most in (1, 5, _MOST))
                print(
                    f"{form}, by {way}, {kind or 'all'}: {len(some)} questions; found among the first 1, 5, {_MOST}:",
                    *(f"{share:.2f}" for share in shares),
                )
            print(f"{form}, by {way}: {1e3 * taken_s:.1f} ms a question")
            for each, at in ranks if lists else ():
                if not 0 < at <= 5:
                    print(f"  {at:3} {each.file}: {each.text}")


def _embed(index: Index, name: str) -> None:
    """Make the vectors of an index, and print how long it took."""
    index.choose_vector_model(vector_model(name))
    begun_s = time.perf_counter()
    made = embed(index)
    taken_s = time.perf_counter() - begun_s
    size = index.contents().size_bytes // 1_000_000
    print(f"{made} vectors by {name} in {taken_s:.1f} s, {made / taken_s:.1f} a second; {size} MB")


def _is_here(asked: Question, folder: Path) -> bool:
    """Return whether the text that a question is about is on this machine in the version that was read."""
    path = folder / asked.file
    found = path.exists() and _plain(asked.said) in _plain(path.read_text())
    if not found:
        print(f"left out, the text is not here: {asked}")
    return found


def _plain(text: str) -> str:
    """Return a text without its layout: blanks of any number, and the bars at the margin of Python's help."""
    return " ".join(text.replace("|", " ").casefold().split())


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("recall",))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--list", action="store_true", help="print what is not found")
    parser.add_argument("--vectors", metavar="MODEL", help="measure what its vectors find, too")
    arguments = parser.parse_args()
    recall(arguments.folder, lists=arguments.list, vectors=arguments.vectors)


if __name__ == "__main__":
    main()
