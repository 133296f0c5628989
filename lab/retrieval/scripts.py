"""Recall of an index by script: `python -m lab.retrieval.scripts` asks thirty questions in English, Chinese and Japanese.

The texts of all three lie in one index, among English ones of this repository.
"""

import tempfile
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from localspec.retrieval.index import Index
from localspec.retrieval.update import add

FACTS = Path(__file__).with_name("scripts.tsv")
LANGUAGES = ("en", "zh", "ja")
_AMONG = 3


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


def recall(folder: Path, language: str) -> float:
    """Return the share of questions in a language whose sentence is among the first three passages.

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
    with closing(Index(folder / "index.db", make=True)) as index:
        add(index, [texts, Path(__file__).parents[2] / "docs"])
        hits = 0
        for at, fact in enumerate(every):
            found = index.search(fact[language].question, _AMONG)
            hits += (texts / language / f"{at}.md") in {each.path for each in found}
    return hits / len(every)


if __name__ == "__main__":
    for each in LANGUAGES:
        with tempfile.TemporaryDirectory() as made:
            print(f"{each}: {recall(Path(made, each), each):.2f} of 30 among the first {_AMONG}")
