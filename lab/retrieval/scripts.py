"""Recall and speed of an index by script, with sixty questions, each in English, Chinese and Japanese.

python -m lab.retrieval.scripts            recall; the texts of all three lie in one index, among this repository's docs
python -m lab.retrieval.scripts FOLDER     seconds of a search among 100,000 passages of the texts in a folder
"""

import re
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from statistics import mean, median, quantiles
from typing import NamedTuple

from localspec.retrieval.index import Index, KnownFile
from localspec.retrieval.passages import NumberedLine, passages
from localspec.retrieval.update import add

FACTS = Path(__file__).with_name("scripts.tsv")
LANGUAGES = ("en", "zh", "ja")
_AMONG, _PASSAGES = 3, 100_000


class Fact(NamedTuple):
    """A sentence and the question that it answers."""

    text: str
    question: str


def facts() -> list[dict[str, Fact]]:
    """Return every fact by language."""
    rows = [line.split("\t") for line in FACTS.read_text().splitlines()]
    return [
        {each: Fact(*row[2 * at : 2 * at + 2]) for at, each in enumerate(LANGUAGES)} for row in rows
    ]


def is_mixed(fact: dict[str, Fact]) -> bool:
    """Return whether the Chinese question has Latin letters or digits, too."""
    return re.search("[A-Za-z0-9]", fact["zh"].question) is not None


def ranks(folder: Path, language: str) -> list[int]:
    """Return at which place each question in a language finds its sentence; 4 where it is not among the first three.

    Args:
        folder: where texts and index are made; it is not there yet.
        language: one of `LANGUAGES`.
    """
    every = facts()
    texts = folder / "texts"
    for at, fact in enumerate(every):
        for name, (text, _) in fact.items():
            path = texts / name / f"{at}.md"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
    places = []
    with closing(Index(folder / "index.db", make=True)) as index:
        add(index, [texts, Path(__file__).parents[2] / "docs"])
        for at, fact in enumerate(every):
            found = [each.path for each in index.search(fact[language].question, _AMONG)]
            path = texts / language / f"{at}.md"
            places.append(1 + (found.index(path) if path in found else _AMONG))
    return places


def recall(places: list[int], counts: Callable[[int], bool] = lambda _at: True) -> float:
    """Return the share of the questions whose numbers count that find their sentence."""
    return mean(each <= _AMONG for at, each in enumerate(places) if counts(at))


def fill(index: Index, folder: Path) -> None:
    """Put the passages of a folder's texts into an index, again under other names up to 100,000."""
    cut = []
    for path in (each for each in sorted(folder.rglob("*")) if each.is_file()):
        lines = path.read_text(errors="replace").splitlines()
        cut.append(passages([NumberedLine(*each) for each in enumerate(lines, 1)], code=False))
    left = _PASSAGES
    with index.writing():
        for number in count():
            some = cut[number % len(cut)][:left]
            index.put(str(number), KnownFile(1, 1, b""), f"{number}.txt", some)
            left -= len(some)
            if not left:
                return


def time_searches(folder: Path) -> None:
    """Print what searches take, by language and in two languages at once: by the clock, then of the processor."""
    every = facts()
    with (
        tempfile.TemporaryDirectory() as place,
        closing(Index(Path(place, "i.db"), make=True)) as index,
    ):
        fill(index, folder)
        asked = {each: [fact[each].question for fact in every] for each in LANGUAGES}
        pairs = zip(asked["zh"], asked["en"], strict=True)
        asked["zh and en in one"] = [f"{zh} {en}" for zh, en in pairs]
        for name, questions in asked.items():
            for clock in (time.perf_counter, time.process_time):
                taken_ms = []
                for each in questions:
                    begun_s = clock()
                    index.search(each, 5)
                    taken_ms.append(1e3 * (clock() - begun_s))
                half, most = median(taken_ms), quantiles(taken_ms, n=20)[-1]
                print(f"{name}, {clock.__name__}: median {half:.1f} ms, 95 % in {most:.1f} ms")


def main() -> None:
    """Measure."""
    if sys.argv[1:]:
        time_searches(Path(sys.argv[1]))
        return
    every = facts()
    for language in LANGUAGES:
        with tempfile.TemporaryDirectory() as made:
            places = ranks(Path(made, language), language)
        print(
            f"{language}: {recall(places):.2f} of {len(places)} among the first {_AMONG},"
            f" {places.count(1) / len(places):.2f} first;"
            f" of the {sum(map(is_mixed, every))} with Latin letters or digits"
            f" {recall(places, lambda at: is_mixed(every[at])):.2f}"
        )


if __name__ == "__main__":
    main()
