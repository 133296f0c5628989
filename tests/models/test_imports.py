import hashlib
from pathlib import Path

import pytest

from localspec.errors import LocalspecError, ModelFileError, ModelUnavailable, UsageError
from localspec.models.entries import PairEntry
from localspec.models.ledger import IMPORTS
from localspec.models.names import import_file, resolve
from localspec.models.registry import Registry
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
    path = store.path_of(IMPORTS.load(store.root)["my-model-q4"])
    assert path is not None
    assert path.resolve() == file


def test_a_copy_survives_its_origin(store: Store, file: Path) -> None:
    imported = import_file(file, "mine", EMPTY, store, copy=True)
    data = file.read_bytes()
    file.unlink()
    path = store.path_of(imported)
    assert path is not None
    assert path.read_bytes() == data


def test_a_file_that_is_gone_has_no_path(
    store: Store, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(store.root))
    import_file(file, "mine", EMPTY, store)
    file.unlink()
    with pytest.raises(ModelUnavailable, match=r"mine was imported from .*, which has been moved"):
        resolve("mine", EMPTY)
    assert list(IMPORTS.load(store.root)) == ["mine"]


def test_the_same_import_twice_changes_nothing(store: Store, file: Path) -> None:
    assert import_file(file, "a", EMPTY, store) == import_file(file, "a", EMPTY, store)
    import_file(file, "b", EMPTY, store)
    assert sorted(IMPORTS.load(store.root)) == ["a", "b"]


def test_a_file_with_the_bytes_of_a_known_model_is_that_model(store: Store, file: Path) -> None:
    entry = entry_for(file.read_bytes())
    import_file(file, "toy", Registry({"toy": entry}, {}, ""), store)
    assert store.path_of(entry) is not None
    assert IMPORTS.load(store.root) == {}


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


def test_what_is_written_is_read_again(store: Store, file: Path) -> None:
    odd = file.with_name('a "b" \\ ünï\n.gguf')
    file.rename(odd)
    imported = import_file(odd, "mine", EMPTY, store)
    assert IMPORTS.load(store.root) == {"mine": imported}


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "models = 1",
        "[models.a]\nb = 1\n",
        "\0",
        "top = 1\n",
        "\udcff",
        f'[models.a]\norigin = "/a.gguf"\nfiles = [{{ size_bytes = 1, sha256 = "{"a" * 64}" }}]\n',
    ],
)
def test_a_damaged_list_is_told(store: Store, text: str) -> None:
    store.root.mkdir()
    (store.root / "imports.toml").write_text(text, errors="surrogateescape")
    with pytest.raises(
        LocalspecError, match=r"imports\.toml cannot be read .*import the files"
    ) as e:
        IMPORTS.load(store.root)
    assert str(e.value).isprintable()
    assert (store.root / "imports.toml").exists()


@pytest.mark.parametrize("sha256", ['"../../etc/passwd"', '"x"', "5", '""'])
def test_a_list_that_points_out_of_the_store_is_not_followed(store: Store, sha256: str) -> None:
    store.root.mkdir()
    text = f'[models.a]\norigin = "x"\nsize_bytes = 1\nsha256 = {sha256}\n'
    (store.root / "imports.toml").write_text(text)
    with pytest.raises(LocalspecError, match=r"sha256 (cannot|must) be"):
        IMPORTS.load(store.root)
