"""The hundred questions are whole, and a known passage is told from others."""

from pathlib import Path

from lab.retrieval import corpus
from lab.retrieval.measure import questions, rank
from localspec.retrieval.index import FoundPassage
from localspec.retrieval.passages import Passage

FOLDER = Path("/texts")


def found(name: str, text: str) -> FoundPassage:
    return FoundPassage(FOLDER / name, Passage(1, 2, "", text), 1.0)


def test_there_are_a_hundred_questions_over_texts_that_are_made() -> None:
    every = questions()
    made = {f"man/{each}" for each in corpus.MANUALS.split()}
    made |= {f"python/{each}.txt" for each in corpus.MODULES.split()}
    assert len({each.text for each in every}) == 100
    assert {each.file for each in every} <= made
    assert all(each.said.strip() for each in every)


def test_the_known_passage_is_the_one_that_says_so_in_that_file() -> None:
    asked = questions()[0]
    right = found(asked.file, f" |  {asked.said.replace(' ', chr(10)).upper()} and more")
    others = [found("man/other.1", asked.said), found(asked.file, "something else")]
    assert rank([*others, right], asked, FOLDER) == 3
    assert rank(others, asked, FOLDER) == 0
