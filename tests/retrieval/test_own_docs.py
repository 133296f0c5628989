"""The program's own documentation is found by the words in which people ask: 19 of twenty and 4 of ten on 2026-11-24; pages may change."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from localspec.retrieval.index import Index
from localspec.retrieval.update import add

DOCS = Path(__file__).parents[2] / "docs"
SHORT = "questions.md"
# Each with the page that answers it, and with a text that stands in the answer. Those that are `later` were written after the
# page of short answers, which was not changed for them.
QUESTIONS = list(
    map(json.loads, Path(__file__).with_name("questions.jsonl").read_text().splitlines())
)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    with closing(Index(tmp_path_factory.mktemp("docs") / "docs.db", make=True)) as index:
        add(index, [DOCS])
        yield index


@pytest.mark.parametrize(("later", "least"), [(False, 17), (True, 2)], ids=["20", "10"])
def test_the_answer_is_among_the_first_five_passages(index: Index, later: bool, least: int) -> None:
    missed, asked = [], [each for each in QUESTIONS if ("later" in each) is later]
    for each in asked:
        found = [
            hit
            for hit in index.search(each["question"], 5)
            if hit.path.name in {each["page"], SHORT}
        ]
        if not any(each["text"].lower() in hit.passage.text.lower() for hit in found):
            missed.append(each["question"])
    assert len(asked) - len(missed) >= least, missed
