"""What is found by words and by vectors, with a real model of some kilobytes whose vectors say which letters a text has."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.errors import UsageError
from localspec.models.names import import_file
from localspec.models.registry import load_registry
from localspec.models.store import Store
from localspec.retrieval import embedding
from localspec.retrieval.embedding import (
    TextVectors,
    Vectors,
    embed,
    is_here,
    nearest,
    text_vectors,
    vector_model,
)
from localspec.retrieval.index import FoundPassage, Index, VectorModel, open_index
from localspec.retrieval.passages import Passage
from localspec.retrieval.search import by_vectors, fuse, search
from localspec.retrieval.update import add, update
from tests.llama import tiny_models

TEXTS = {"tea.md": "# Tea\n\ntea tea tea tea", "zoo.txt": "zzz zzz zoo zoo", "code.py": "def f(x): pass"}  # fmt: skip
QS = "quite another text, qqqq qqqq qqqq"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    for name, text in TEXTS.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    imported("tiny", tmp_path)
    with closing(open_index("notes", make=True)) as index:
        index.choose_vector_model(vector_model("tiny"))
        yield index


@pytest.fixture
def filled(index: Index, folder: Path) -> Index:
    add(index, [folder])
    assert embed(index) == 3
    return index


def imported(name: str, folder: Path, seed: int = 1) -> VectorModel:
    path = tiny_models.write_llama(folder / f"{name}.gguf", 0.01, seed, pooling=1)
    import_file(path, name, load_registry(), Store(folder / "data"), copy=True)
    return vector_model(name)


def names(passages: list[FoundPassage]) -> list[str]:
    return [each.path.name for each in passages]


def test_a_passage_is_found_by_what_its_words_are_like(filled: Index) -> None:
    assert filled.search("zozo", 5) == []
    assert names(by_vectors(filled, "zozo zz", 3))[0] == "zoo.txt"
    assert names(search(filled, "zozo zz", 5))[0] == "zoo.txt"
    assert names(search(filled, "tea", 5))[0] == "tea.md"
    assert search(filled, " ", 5) == []


def test_only_what_is_new_gets_vectors_and_what_is_gone_loses_them(
    index: Index, folder: Path
) -> None:
    add(index, [folder])
    reports = list[tuple[int, int]]()
    assert embed(index, lambda done, total: reports.append((done, total))) == 3
    assert reports == [(3, 3)]
    assert embed(index) == 0
    (folder / "tea.md").write_text(QS)
    (folder / "zoo.txt").unlink()
    update(index)
    assert embed(index) == 1
    found = names(by_vectors(index, "qqqq", 9))
    assert (found[0], len(found)) == ("tea.md", 2)


def test_vectors_of_another_model_are_made_again(filled: Index, tmp_path: Path) -> None:
    filled.choose_vector_model(vector_model("tiny"))
    assert embed(filled) == 0, "the same model changes nothing"
    filled.choose_vector_model(imported("other", tmp_path, seed=2))
    assert by_vectors(filled, "tea", 5) == []
    assert embed(filled) == 3
    filled.choose_vector_model(None)
    assert (filled.vector_model(), embed(filled)) == (None, 0)
    assert names(search(filled, "tea", 5)) == ["tea.md"]


@pytest.mark.parametrize("name", ["other", None])
def test_what_one_model_made_is_not_written_once_another_is_chosen(
    index: Index, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    add(index, [folder])
    monkeypatch.setattr(embedding, "_AT_ONCE", 1)
    chosen = imported("other", folder.parent, seed=2) if name else None
    with closing(open_index("notes", make=True)) as beside:
        with pytest.raises(UsageError, match=r"another model .* `localspec index update notes`"):
            embed(index, lambda _done, _total: beside.choose_vector_model(chosen))
        with beside.reading():
            assert list(beside.vectors()) == []
    assert embed(index) == (3 if name else 0)


def test_a_question_is_not_compared_with_vectors_of_a_model_chosen_meanwhile(
    filled: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, of_question = imported("other", tmp_path, seed=2), TextVectors.of_question

    def slow(make: TextVectors, text: str) -> Vectors:
        with closing(open_index("notes", make=True)) as beside:
            beside.choose_vector_model(other)
            embed(beside)
        return of_question(make, text)

    monkeypatch.setattr(TextVectors, "of_question", slow)
    assert by_vectors(filled, "tea", 5) == []
    assert len(by_vectors(filled, "tea", 5)) == 3, "of the one that is chosen now"


def test_without_its_model_an_index_finds_by_words_and_makes_no_vectors(
    filled: Index, tmp_path: Path
) -> None:
    nameless = tiny_models.write_llama(tmp_path / "nameless.gguf", pooling=1)
    with pytest.raises(UsageError, match=r"localspec import"):
        vector_model(str(nameless))
    assert filled.vector_model() == vector_model("tiny")
    filled.choose_vector_model(VectorModel("gone", "0" * 64))
    assert not is_here(VectorModel("gone", "0" * 64))
    assert names(search(filled, "tea", 5)) == ["tea.md"]
    with pytest.raises(UsageError, match="localspec pull gone"):
        embed(filled)


def test_vectors_of_a_file_that_changed_meanwhile_are_not_written(
    index: Index, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The passages that take its place have the numbers of those that are gone."""
    add(index, [folder])
    before = index.without_vector(0, 9)
    for change in (Path.unlink, lambda path: path.write_text(f"other {path.name}")):
        for name in TEXTS:
            change(folder / name)
        update(index)
    now = index.without_vector(0, 9)
    assert {number for number, *_ in now} & {number for number, *_ in before}
    with index.writing():
        assert not any(index.put_vector(each, bytes(8)) for each in before)
    of_passages = TextVectors.of_passages

    def slow(make: TextVectors, texts: Sequence[str]) -> Vectors:
        (folder / "tea.md").write_text(QS)
        with closing(open_index("notes", make=True)) as beside:
            update(beside)
        return of_passages(make, texts)

    with monkeypatch.context() as patch:
        patch.setattr(TextVectors, "of_passages", slow)
        assert embed(index) in {2, 3}
    embed(index)
    assert index.count_without_vector() == 0
    assert names(by_vectors(index, "qqqq", 9))[0] == "tea.md"


def long_file(folder: Path, parts: int) -> Path:
    (folder / "long.md").write_text("\n\n".join(f"# part {at}\n" + "long text " * 60 for at in range(parts)))  # fmt: skip
    return folder / "long.md"


def test_what_is_killed_while_making_vectors_goes_on(index: Index, tmp_path: Path) -> None:
    many = tmp_path / "many"
    many.mkdir()
    for number in range(90):
        (many / f"{number:03}.txt").write_text(f"word{number} and more {number}")
    long_file(many, 80)
    add(index, [many])
    command: list[Any] = [sys.executable, "-m", "tests.retrieval.background", "embed", index.path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
    left, make = embed(index), text_vectors(vector_model("tiny"))
    assert 0 < left < index.contents().passages
    assert make is not None
    assert index.count_without_vector() == 0
    with index.reading():
        for number in (0, 23, 89):
            text = f"many/{number:03}.txt \nword{number} and more {number}"
            ((passage, score),) = nearest(index, make.of_passages([text])[0], 1)
            assert index.passage(passage, score).path.name == f"{number:03}.txt"


def test_the_nearest_of_many_vectors_is_found_and_a_change_is_noticed(
    index: Index, tmp_path: Path
) -> None:
    """Seven hundred passages; a vector that is turned by 37 degrees."""
    add(index, [long_file(tmp_path, 700)])
    drawn = np.random.default_rng(1)
    vectors = drawn.normal(size=(700, 72)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    with index.writing():
        for passage, vector in zip(index.without_vector(0, 1000), vectors, strict=True):
            assert index.put_vector(passage, vector.astype(np.float16).tobytes())
    for at in (0, 199, 200, 377, 699):
        sought = vectors[at] + 0.75 * drawn.normal(size=72).astype(np.float32) / 72**0.5
        with index.reading():
            ((number, score),) = nearest(index, sought / np.linalg.norm(sought), 1)
            assert index.passage(number, score).passage.heading == f"part {at}"
        assert 0.5 < score < 1
    index.remove(str(tmp_path / "long.md"))
    with index.reading():
        assert nearest(index, vectors[0], 1) == []


def test_rankings_are_fused_by_reciprocal_rank() -> None:
    a, b, c = (FoundPassage(Path(each), Passage(1, 1, "", each), 9.0) for each in "abc")
    assert names(fuse([[a, b], [c, b]])) == ["b", "a", "c"]
    (only,) = fuse([[a]])
    assert only.score == pytest.approx(1 / 61)
