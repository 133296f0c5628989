from pathlib import Path

import pytest

from localspec.errors import ModelUnavailable
from localspec.models.names import import_file, look_up, resolve
from localspec.models.registry import load_registry
from localspec.models.store import Store
from localspec.storage.paths import data_dir
from tests.models.gguf_builder import model_file

REGISTRY = load_registry()


@pytest.fixture(autouse=True)
def a_machine_without_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))


def test_a_known_name_is_a_model() -> None:
    assert resolve("smollm2-135m", REGISTRY) is REGISTRY.models["smollm2-135m"]


@pytest.mark.parametrize("reference", ["here/my.gguf", "my.gguf", "my.GGUF", "here/model", "model"])
def test_what_looks_like_a_path_or_is_a_file_is_a_path(
    reference: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("here").mkdir()
    Path(reference).touch()
    assert resolve(reference, REGISTRY) == Path(reference)


def test_the_home_directory_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "my.gguf").touch()
    assert resolve("~/my.gguf", REGISTRY) == tmp_path / "my.gguf"


def test_a_file_does_not_hide_a_known_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("smollm2-135m").touch()
    assert resolve("smollm2-135m", REGISTRY) is REGISTRY.models["smollm2-135m"]
    assert resolve("./smollm2-135m", REGISTRY) == Path("smollm2-135m")


@pytest.mark.parametrize(
    ("reference", "match"),
    [
        ("gone.gguf", r"no file gone.gguf: check the path, or use a known name \(.*smollm2-135m"),
        ("gone/model", "gone/model was not found locally, and localspec is offline"),
        (".", "no model '.'"),
        ("./", "is a directory: give the .gguf file in it"),
        ("smolm2-135m", "did you mean smollm2-135m, "),
        ("", "no model ''"),
        ("a\nb.gguf", r"no file 'a\\nb.gguf'"),
        ("a\0b.gguf", "no file"),
        ("x" * 5000 + ".gguf", "cannot be a model file"),
        ("x" * 5000, "cannot be a model file"),
        ("~nobody-of-this-name/x", "cannot be a model file"),
    ],
)
def test_what_is_not_there_is_told_in_one_line(
    reference: str, match: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelUnavailable, match=match) as caught:
        look_up(reference, REGISTRY, offline=True)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


def test_an_imported_name_is_its_file(tmp_path: Path) -> None:
    file = tmp_path / "own.gguf"
    file.write_bytes(model_file())
    store = Store(data_dir())
    import_file(file, "mine", REGISTRY, store)
    found = resolve("mine", REGISTRY)
    assert isinstance(found, Path)
    assert found.resolve() == file
    file.unlink()
    with pytest.raises(
        ModelUnavailable, match=r"mine was imported from .*own\.gguf, which has been moved"
    ):
        resolve("mine", REGISTRY)
