import hashlib
import json
from pathlib import Path

import pytest

from localspec.errors import LocalspecError, ModelFileError, ModelUnavailable, UsageError
from localspec.models.imported import import_file, imported_paths, load_imported
from localspec.models.registry import PairEntry, Registry
from localspec.models.store import Store
from tests.models.gguf_builder import model_file
from tests.models.sources import entry_for

EMPTY = Registry({}, {}, "")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "data")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "My Model (Q4).gguf"
    path.write_bytes(model_file())
    return path


def test_an_imported_file_is_pointed_at_and_has_a_name(store: Store, file: Path) -> None:
    imported = import_file(file, None, EMPTY, store)
    assert imported.name == "my-model-q4"
    assert imported.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    path = imported_paths(store.root)["my-model-q4"]
    assert path.resolve() == file


def test_a_copy_survives_its_origin(store: Store, file: Path) -> None:
    import_file(file, "mine", EMPTY, store, copy=True)
    data = file.read_bytes()
    file.unlink()
    assert imported_paths(store.root)["mine"].read_bytes() == data


def test_a_file_that_is_gone_has_no_path(store: Store, file: Path) -> None:
    import_file(file, "mine", EMPTY, store)
    file.unlink()
    assert imported_paths(store.root) == {}
    assert list(load_imported(store.root)) == ["mine"]


def test_the_same_import_twice_changes_nothing(store: Store, file: Path) -> None:
    assert import_file(file, "a", EMPTY, store) == import_file(file, "a", EMPTY, store)
    import_file(file, "b", EMPTY, store)
    assert sorted(load_imported(store.root)) == ["a", "b"]


def test_a_file_with_the_bytes_of_a_known_model_is_that_model(store: Store, file: Path) -> None:
    entry = entry_for(file.read_bytes())
    import_file(file, "toy", Registry({"toy": entry}, {}, ""), store)
    assert store.path_of(entry) is not None
    assert load_imported(store.root) == {}


def test_a_name_of_another_model_is_taken(store: Store, file: Path) -> None:
    pair = PairEntry("pair", "toy", "lookup", None, "x")
    registry = Registry({"toy": entry_for(b"other")}, {"pair": pair}, "pair")
    for name in ("toy", "pair"):
        with pytest.raises(UsageError, match=f"the name {name} is taken"):
            import_file(file, name, registry, store)
    import_file(file, "mine", EMPTY, store)
    other = file.with_name("other.gguf")
    other.write_bytes(model_file(pre="other"))
    with pytest.raises(UsageError, match="the name mine is taken"):
        import_file(other, "mine", EMPTY, store)


@pytest.mark.parametrize("name", ["", "../x", "/etc/passwd", "a/b", "a\0b", "-x", "x" * 81, "a b"])
def test_a_name_is_no_path(store: Store, file: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be a name"):
        import_file(file, name, EMPTY, store)
    assert not store.root.exists()


def test_what_is_no_model_is_not_imported(store: Store, tmp_path: Path) -> None:
    text = tmp_path / "x.gguf"
    text.write_text("no model")
    with pytest.raises(ModelFileError, match="is not a GGUF file"):
        import_file(text, None, EMPTY, store)
    with pytest.raises(ModelUnavailable):
        import_file(tmp_path / "gone.gguf", None, EMPTY, store)
    assert not store.root.exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1}', '{"a": {"b": 1}}', "\0"])
def test_a_damaged_list_is_told(store: Store, text: str) -> None:
    store.root.mkdir()
    (store.root / "imported.json").write_text(text)
    with pytest.raises(LocalspecError, match=r"imported\.json cannot be read \(it is damaged\)"):
        load_imported(store.root)


@pytest.mark.parametrize("sha256", ["../../etc/passwd", "x", 5, ""])
def test_a_list_that_points_out_of_the_store_is_not_followed(store: Store, sha256: object) -> None:
    store.root.mkdir()
    values = {"sha256": sha256, "size_bytes": 1, "origin": "x"}
    (store.root / "imported.json").write_text(json.dumps({"a": values}))
    assert load_imported(store.root) == {}
