"""What the index finds of a hundred questions (`recall`), and what an index of 10,000 files, or as many as you say, costs (`many`).

`python -m lab.retrieval.measure recall FOLDER` and `many FOLDER` make what they need in FOLDER where it is not there.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path, PurePath
from statistics import mean, median
from typing import TypeVar

import numpy as np

from lab.retrieval import corpus
from localspec.retrieval.embedding import embed, vector_model
from localspec.retrieval.finding import by_vectors, found
from localspec.retrieval.index import FoundPassage, Index
from localspec.retrieval.nearest import nearest
from localspec.retrieval.update import Changes, add, update
from localspec.retrieval.vector_table import VectorModel
from localspec.retrieval.vectors import Vector, encoded, signs_of

QUESTIONS = Path(__file__).with_name("questions.tsv")
_MOST = 20
_FILES, _CHANGED = 10_000, 100
"""How many files `many` makes, and of how many one is changed in each turn."""
_WIDTH = 384
"""Of vectors that are drawn: that of the smaller models."""

T = TypeVar("T")
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
            ways |= {"vectors": partial(by_vectors, index), "both": partial(found, index)}
        asked = [each for each in questions() if _is_here(each, folder)]
        for form, (way, search) in product(("named", "text"), ways.items()):
            begun_s = time.perf_counter()
            ranks = [
                (each, rank(search(getattr(each, form), _MOST), each, folder)) for each in asked
            ]
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


def make_many(folder: Path, texts: Path, files: int) -> None:
    """Write files of paragraphs drawn from real texts, of 1 to 12 KB, in 100 folders."""
    drawn = random.Random(0)
    blocks = [
        each for path in sorted(texts.rglob("*.*")) for each in path.read_text().split("\n\n")
    ]
    for number in range(files):
        path = folder / f"{number % 100:02}" / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        size, said = drawn.randint(1000, 12_000), list[str]()
        while sum(map(len, said)) < size:
            said.append(drawn.choice(blocks))
        path.write_text(f"Notes {number}\n==========\n\n" + "\n\n".join(said))


def many(folder: Path, files: int) -> None:
    """Print what an index of so many files takes, each step in a process of its own."""
    folder = folder.resolve()
    texts = folder / "texts"
    if not folder.exists():
        corpus.make(texts)
        make_many(folder / "many", texts, files)
    total = sum(each.stat().st_size for each in (folder / "many").rglob("*.txt"))
    print(f"{files} files, {total / 1e6:.0f} MB")
    with tempfile.TemporaryDirectory() as place:
        database = Path(place) / "i" / "x.db"
        first = _in_process(database, "add", str(folder / "many"))
        _print("index", first)
        again = [_in_process(database, "update") for _ in range(3)]
        _print("nothing changed", min(again, key=lambda each: each["seconds"]))
        ratios = []
        for turn in range(3):
            for number in range(turn, files, _CHANGED):
                with (folder / "many" / f"{number % 100:02}" / f"{number}.txt").open("a") as file:
                    file.write(f"\n\nadded in turn {turn}\n")
            changed = _in_process(database, "update")
            ratios.append(changed["processor_seconds"] / first["processor_seconds"])
            _print("1 % changed", changed)
        print(f"1 % changed: {median(ratios):.1%} of what the first index took of a processor")
        asked = _in_process(database, "search")
        _print("a query by words", asked)
        _print("vectors drawn by lot", _in_process(database, "draw"))
        _print("a search of vectors", _in_process(database, "nearest"))


def _print(what: str, figures: dict[str, float]) -> None:
    shown = ", ".join(f"{name} {value:g}" for name, value in figures.items())
    print(f"{what}: {shown}")


def _in_process(*words: str | Path) -> dict[str, float]:
    command = [sys.executable, "-m", "lab.retrieval.measure", "--step", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def step(words: Sequence[str]) -> dict[str, float]:
    """Do one step of `many` and return its figures."""
    with closing(Index(Path(words[0]), make=True)) as index:
        begun_s = time.perf_counter()
        if words[1] == "search":
            return _times([each.text for each in questions()], index.search)
        if words[1] == "draw":
            return _drawn(index)
        if words[1] == "nearest":
            return _nearest(index)
        changes: Changes = add(index, [Path(words[2])]) if words[1] == "add" else update(index)
        taken_s = time.perf_counter() - begun_s
        contents = index.contents()
    used = [resource.getrusage(each) for each in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "seconds": round(taken_s, 2),
        # With Python's start: a machine where other programs run has no better clock.
        "processor_seconds": round(sum(each.ru_utime + each.ru_stime for each in used), 2),
        "added": changes.added,
        "changed": changes.changed,
        "passages": contents.passages,
        "megabytes": contents.size_bytes // 1_000_000,
        "resident_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000,
    }


def _drawn(index: Index) -> dict[str, float]:
    """Give an index vectors that say nothing, which are searched as others are, and are made at once."""
    index.choose_vector_model(VectorModel("drawn", "0" * 64))
    drawn = np.random.default_rng(0)
    with index.reading():
        parts = index.vectors.wanting()
    with index.writing():
        for part in parts:
            vectors = drawn.normal(size=(part.passages, _WIDTH)).astype(np.float32)
            codes = encoded(vectors)
            index.vectors.put(part, codes.tobytes(), signs_of(codes).tobytes())
    contents = index.contents()
    return {"vectors": contents.passages, "megabytes": contents.size_bytes // 1_000_000}


def _nearest(index: Index) -> dict[str, float]:
    drawn = np.random.default_rng(1)
    vectors = [drawn.normal(size=_WIDTH).astype(np.float32) for _ in questions()]

    def search(vector: Vector, most: int) -> list[FoundPassage]:
        with index.reading():
            return [
                index.found(number, score) for score, number in nearest(index.vectors, vector, most)
            ]

    return _times([each / np.linalg.norm(each) for each in vectors], search)


def _times(asked: Sequence[T], search: Callable[[T, int], list[FoundPassage]]) -> dict[str, float]:
    times = []
    for each in asked:
        begun_s = time.perf_counter()
        search(each, 5)
        times.append(1e3 * (time.perf_counter() - begun_s))
    times.sort()
    return {
        "median_ms": round(median(times), 1),
        "p95_ms": round(times[int(0.95 * len(times))], 1),
        "most_ms": round(times[-1], 1),
        "resident_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000,
    }


def _plain(text: str) -> str:
    """Return a text without its layout: blanks of any number, and the bars at the margin of Python's help."""
    return " ".join(text.replace("|", " ").casefold().split())


def main() -> None:
    """Measure."""
    if sys.argv[1:2] == ["--step"]:
        print(json.dumps(step(sys.argv[2:])))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("recall", "many"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--list", action="store_true", help="print what is not found")
    parser.add_argument("--files", type=int, default=_FILES, help="that `many` makes")
    parser.add_argument("--vectors", metavar="MODEL", help="measure what its vectors find, too")
    arguments = parser.parse_args()
    os.environ.setdefault("PYTHONHASHSEED", "0")
    if arguments.what == "recall":
        recall(arguments.folder, lists=arguments.list, vectors=arguments.vectors)
    else:
        many(arguments.folder, arguments.files)


if __name__ == "__main__":
    main()
