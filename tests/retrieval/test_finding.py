"""What is found by words and by vectors, with a real model of some kilobytes whose vectors say which letters a text has."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from localspec.errors import UsageError
from localspec.models.names import import_file
from localspec.models.registry import load_registry
from localspec.models.store import Store
from localspec.retrieval import embedding
from localspec.retrieval.embedding import (
    TextVectors,
    embed,
    is_here,
    text_vectors,
    vector_model,
)
from localspec.retrieval.finding import by_vectors, found, fused
from localspec.retrieval.index import FoundPassage, Index, made
from localspec.retrieval.nearest import nearest
from localspec.retrieval.passages import Passage
from localspec.retrieval.update import add, update
from localspec.retrieval.vector_table import VectorModel, VectorTable
from localspec.retrieval.vectors import Vector, Vectors, encoded, signs_of
from tests.llama import tiny_models

TEXTS = {
    "tea.md": "# Tea\n\ntea tea tea tea",
    "zoo.txt": "zzz zzz zoo zoo",
    "code.py": "def f(x): pass",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    for name, text in TEXTS.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """An index whose vectors the tiny model makes."""
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    imported("tiny", tmp_path / "tiny.gguf")
    with closing(made("notes")) as index:
        index.choose_vector_model(vector_model("tiny"))
        yield index


def imported(name: str, path: Path, seed: int = 1) -> None:
    tiny_models.write_llama(path, 0.01, seed, pooling=1)
    import_file(path, name, load_registry(), Store(path.parent / "data"), copy=True)


def names(passages: list[FoundPassage]) -> list[str]:
    return [each.path.name for each in passages]


def test_a_passage_is_found_by_what_its_words_are_like(index: Index, folder: Path) -> None:
    add(index, [folder])
    assert embed(index) == 3
    assert index.search("zozo", 5) == []
    assert names(by_vectors(index, "zozo zz", 3))[0] == "zoo.txt"
    assert names(found(index, "zozo zz", 5))[0] == "zoo.txt"
    assert names(found(index, "tea", 5))[0] == "tea.md"
    assert found(index, " ", 5) == []


def test_only_what_is_new_gets_vectors_and_what_is_gone_loses_them(
    index: Index, folder: Path
) -> None:
    add(index, [folder])
    told = list[tuple[int, int]]()
    assert embed(index, lambda done, total: told.append((done, total))) == 3
    assert told == [(3, 3)]
    assert embed(index) == 0
    (folder / "tea.md").write_text("quite another text, qqqq qqqq qqqq")
    (folder / "zoo.txt").unlink()
    update(index)
    assert embed(index) == 1
    assert names(by_vectors(index, "qqqq", 9))[0] == "tea.md"
    assert len(by_vectors(index, "qqqq", 9)) == 2


def test_vectors_of_another_model_are_made_again(index: Index, folder: Path) -> None:
    add(index, [folder])
    embed(index)
    index.choose_vector_model(vector_model("tiny"))
    assert embed(index) == 0, "the same model changes nothing"
    imported("other", folder.parent / "other.gguf", seed=2)
    index.choose_vector_model(vector_model("other"))
    assert by_vectors(index, "tea", 5) == []
    assert embed(index) == 3
    index.choose_vector_model(None)
    assert (index.vector_model(), embed(index)) == (None, 0)
    assert names(found(index, "tea", 5)) == ["tea.md"]


@pytest.mark.parametrize("name", ["other", None])
def test_what_one_model_made_is_not_written_once_another_is_chosen(
    index: Index, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    add(index, [folder])
    monkeypatch.setattr(embedding, "_AT_ONCE", 1)
    imported("other", folder.parent / "other.gguf", seed=2)
    chosen = name and vector_model(name)
    with closing(made("notes")) as beside:
        with pytest.raises(UsageError, match=r"another model .* `localspec index update notes`"):
            embed(index, lambda _done, _total: beside.choose_vector_model(chosen or None))
        with beside.reading():
            assert list(beside.vectors.signs()) == []
    assert embed(index) == (3 if name else 0)


def test_a_question_is_not_compared_with_vectors_of_a_model_chosen_meanwhile(
    index: Index, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(index, [folder])
    embed(index)
    imported("other", folder.parent / "other.gguf", seed=2)
    of_question = TextVectors.of_question

    def slow(make: TextVectors, text: str) -> Vector:
        with closing(made("notes")) as beside:
            beside.choose_vector_model(vector_model("other"))
            embed(beside)
        return of_question(make, text)

    monkeypatch.setattr(TextVectors, "of_question", slow)
    assert by_vectors(index, "tea", 5) == []
    assert len(by_vectors(index, "tea", 5)) == 3, "of the one that is chosen now"


def test_without_its_model_an_index_finds_by_words_and_makes_no_vectors(
    index: Index, folder: Path
) -> None:
    add(index, [folder])
    embed(index)
    index.choose_vector_model(VectorModel("gone", "0" * 64))
    assert not is_here(VectorModel("gone", "0" * 64))
    assert names(found(index, "tea", 5)) == ["tea.md"]
    with pytest.raises(UsageError, match="localspec pull gone"):
        embed(index)


def test_a_file_without_a_name_makes_no_vectors(index: Index, tmp_path: Path) -> None:
    path = tiny_models.write_llama(tmp_path / "nameless.gguf", pooling=1)
    with pytest.raises(UsageError, match=r"localspec import"):
        vector_model(str(path))
    assert index.vector_model() == vector_model("tiny")


def test_vectors_of_a_file_that_changed_meanwhile_are_not_written(
    index: Index, folder: Path
) -> None:
    add(index, [folder])
    with index.reading():
        (part, *_) = index.vectors.wanting()
    (folder / "tea.md").write_text("other")
    (folder / "zoo.txt").write_text("other, too")
    (folder / "code.py").write_text("and other")
    update(index)
    with index.writing():
        index.vectors.put(part, bytes(8), bytes(1))
    with index.reading():
        assert sum(each.passages for each in index.vectors.wanting()) == 3


def test_a_file_that_is_again_what_it_was_has_all_its_vectors_in_the_end(
    index: Index, tmp_path: Path
) -> None:
    """It changes, and back, while its second part is made."""
    path = tmp_path / "long.md"
    said = "\n\n".join(f"# part {at}\n" + "long text " * 60 for at in range(130))
    path.write_text(said)
    add(index, [path])
    with index.reading():
        first, second, third = index.vectors.wanting()
    with index.writing():
        index.vectors.put(first, bytes(64 * 8), bytes(64))
    path.write_text("other")
    update(index)
    path.write_text(said)
    update(index)
    with index.writing():
        index.vectors.put(second, bytes(64 * 8), bytes(64))
    with index.reading():
        assert [each.number for each in index.vectors.wanting()] == [0, 2]
        assert index.vectors.wanting() == [first, third]


def test_a_file_that_was_another_one_while_its_texts_were_read_gets_no_vectors_of_that(
    index: Index, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "tea.md"
    said = "\n\n".join(f"# part {at}\n" + "tea text " * 60 for at in range(3))
    path.write_text(said)
    add(index, [path])
    of_passages = TextVectors.of_passages

    def written(text: str) -> None:
        path.write_text(text)
        with closing(made("notes")) as beside:
            update(beside)

    def slow(make: TextVectors, read: Sequence[str]) -> Vectors:
        written(said)
        return of_passages(make, read)

    with index.reading():
        before = index.vectors.wanting()
    with monkeypatch.context() as patch:
        patch.setattr(VectorTable, "wanting", lambda _: before)
        patch.setattr(TextVectors, "of_passages", slow)
        written("zoo")
        assert embed(index) == 0
    with index.reading():
        assert index.vectors.wanting() == before
    assert embed(index) == sum(each.passages for each in before) > 1


def test_what_is_killed_while_making_vectors_goes_on(index: Index, tmp_path: Path) -> None:
    count, many = 90, tmp_path / "many"
    many.mkdir()
    for number in range(count):
        (many / f"{number:03}.txt").write_text(f"word{number} and more {number}")
    (many / "long.md").write_text(
        "\n\n".join(f"# part {at}\n" + "long text " * 60 for at in range(80))
    )
    add(index, [many])
    total = index.contents().passages
    command = [sys.executable, "-m", "tests.retrieval.vectoring", str(index.path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ}
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
    left, make = embed(index), text_vectors(vector_model("tiny"))
    assert 0 < left < total
    assert make is not None
    with index.reading():
        assert index.vectors.wanting() == []
        for number in (0, 23, 89):
            said = f"many/{number:03}.txt \nword{number} and more {number}"
            ((score, place),) = nearest(index.vectors, make.of_passages([said])[0], 1)
            assert index.found(place, score).path.name == f"{number:03}.txt"


def test_the_nearest_is_found_where_only_signs_were_compared_at_first(
    index: Index, tmp_path: Path
) -> None:
    """Seven hundred passages, of which five hundred are looked at in full; a vector that is turned by 37 degrees."""
    said = "\n\n".join(f"# part {at}\n" + "long text " * 60 for at in range(700))
    (tmp_path / "long.md").write_text(said)
    add(index, [tmp_path / "long.md"])
    drawn = np.random.default_rng(1)
    with index.reading():
        parts = index.vectors.wanting()
    assert [each.passages for each in parts] == [64] * 10 + [60]
    vectors = drawn.normal(size=(700, 72)).astype(np.float32)
    with index.writing():
        for part in parts:
            codes = encoded(vectors[part.number * 64 :][: part.passages])
            index.vectors.put(part, codes.tobytes(), signs_of(codes).tobytes())
    for at in (0, 63, 64, 377, 699):
        sought = vectors[at] + 0.75 * drawn.normal(size=72).astype(np.float32)
        with index.reading():
            ((score, place),) = nearest(index.vectors, sought / np.linalg.norm(sought), 1)
            assert index.found(place, score).passage.heading == f"part {at}"
        assert 0.5 < score < 1


def test_rankings_are_fused_by_reciprocal_rank() -> None:
    a, b, c = (FoundPassage(Path(each), Passage(1, 1, "", each), 9.0) for each in "abc")
    assert [each.path.name for each in fused([[a, b], [c, b]])] == ["b", "a", "c"]
    (only,) = fused([[a]])
    assert only.score == pytest.approx(1 / 61)
