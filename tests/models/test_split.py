"""A model in several files: judged whole by its headers, and the same text from real weights."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.errors import ModelFileError, UsageError
from localspec.launch.fit import plan_fit
from localspec.launch.load import load
from localspec.launch.plan import make_plan
from localspec.models.entries import HubSource, of_shards
from localspec.models.gguf import read_header, read_model
from localspec.models.inventory import inventory, plan_removal, remove
from localspec.models.names import import_file
from localspec.models.pull import fetch
from localspec.models.registry import load_registry
from localspec.models.store import Store
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from tests.models.gguf_builder import Raw, build, model_file, model_values
from tests.models.shapes import LLAMA_1B, sparse_model
from tests.models.sources import entry_for
from tests.models.splitting import split_gguf


def shard(number: int, count: int, **changes: str) -> bytes:
    keys = {
        "split.no": Raw(2, number.to_bytes(2, "little")),
        "split.count": Raw(2, count.to_bytes(2, "little")),
    }
    return build({**model_values(**changes), **keys} if number == 0 else keys)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    folder = tmp_path / "models"
    folder.mkdir()
    for number in range(3):
        (folder / f"toy-{number + 1:05}-of-00003.gguf").write_bytes(shard(number, 3))
    return folder


def test_all_headers_are_one(tmp_path: Path) -> None:
    narrow = replace(LLAMA_1B, n_embd=256, n_ff=512, n_vocab=1000)
    whole = sparse_model(tmp_path / "whole.gguf", narrow)
    (tmp_path / "split").mkdir()
    first, *others = split_gguf(whole, tmp_path / "split", "m", 40)
    assert len(others) == 3
    header = read_model(first)
    assert [t.name for t in header.tensors] == [t.name for t in read_header(whole).tensors]
    assert header.size_bytes == sum(each.stat().st_size for each in (first, *others))
    plans = [plan_fit(read_model(path), None, LoadOptions(gpu_layers=0)) for path in (whole, first)]
    needed = [plan and plan.uses[0].needed_bytes for plan in plans]
    assert needed[0] == needed[1]
    assert needed[0]


def test_a_model_in_one_file_is_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "toy.gguf").write_bytes(model_file())
    assert len(read_model(tmp_path / "toy.gguf").tensors) == 1


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("toy-00002-of-00003.gguf", "is file 2 of 3 of a model: give the first, toy-00001-of-000"),
        ("renamed.gguf", "finds the others by names that end in -00001-of-00003.gguf: name them"),
        ("toy-00001-of-00002.gguf", "is file 1 of 3 of a model, and llama.cpp finds"),
    ],
)
def test_a_shard_that_cannot_be_opened_says_why(folder: Path, file: str, told: str) -> None:
    if not (folder / file).exists():
        shutil.copyfile(folder / "toy-00001-of-00003.gguf", folder / file)
    with pytest.raises(ModelFileError, match=told):
        read_model(folder / file)


def test_a_missing_shard_is_named(folder: Path) -> None:
    (folder / "toy-00003-of-00003.gguf").unlink()
    with pytest.raises(ModelFileError, match=r"and toy-00003-of-00003\.gguf is not beside it"):
        read_model(folder / "toy-00001-of-00003.gguf")


def test_shards_in_a_circle_or_of_another_model_are_refused(folder: Path) -> None:
    first, second = (folder / f"toy-{n:05}-of-00003.gguf" for n in (1, 2))
    second.unlink()
    second.symlink_to(first)
    with pytest.raises(ModelFileError, match=r"toy-00002-of-00003\.gguf is not file 2 of 3"):
        read_model(first)
    second.unlink()
    second.symlink_to(second)  # a link to itself is not there
    with pytest.raises(ModelFileError, match="is not beside it"):
        read_model(first)
    second.unlink()
    second.write_bytes(model_file())
    with pytest.raises(ModelFileError, match="is not file 2 of 3"):
        read_model(first)


def test_an_absurd_number_of_shards_costs_nothing(folder: Path) -> None:
    first = folder / "toy-00001-of-99999.gguf"
    count = Raw(10, (2**63).to_bytes(8, "little"))
    first.write_bytes(build({**model_values(), "split.count": count}))
    with pytest.raises(ModelFileError, match="name them so"):
        read_model(first)
    first.write_bytes(build({**model_values(), "split.count": 99999}))
    with pytest.raises(ModelFileError, match=r"toy-00002-of-99999\.gguf is not beside it"):
        read_model(first)


@pytest.mark.parametrize("copy", [False, True])
def test_an_imported_split_model_is_one_name(folder: Path, tmp_path: Path, copy: bool) -> None:
    store, registry = Store(tmp_path / "data"), load_registry()
    first = folder / "toy-00001-of-00003.gguf"
    imported = import_file(first, "mine", registry, store, copy=copy)
    (item,) = inventory(registry, store)
    assert (item.name, item.where) == ("mine", "store" if copy else "link")
    assert item.here_bytes == sum(path.stat().st_size for path in folder.iterdir())
    path = store.path_of(imported)
    assert path is not None
    assert path.name == "model-00001-of-00003.gguf"
    assert read_model(path).architecture == "toy"
    changed = folder / "toy-00003-of-00003.gguf"
    changed.write_bytes(changed.read_bytes() + b"\0")
    with pytest.raises(UsageError, match="the name mine is taken"):
        import_file(first, "mine", registry, store)
    freed = remove(plan_removal(["mine"], registry, store), store)
    assert inventory(registry, store) == []
    assert (freed > 0) == copy
    assert len(list(folder.iterdir())) == 3


def test_a_file_that_another_split_uses_stays(folder: Path, tmp_path: Path) -> None:
    store, registry = Store(tmp_path / "data"), load_registry()
    first = folder / "toy-00001-of-00003.gguf"
    import_file(first, "mine", registry, store, copy=True)
    changed = folder / "toy-00003-of-00003.gguf"
    changed.write_bytes(changed.read_bytes() + b"\0")
    other = import_file(first, "other", registry, store, copy=True)
    removal = plan_removal(["mine"], registry, store)
    assert removal.frees_bytes == remove(removal, store) == changed.stat().st_size - 1
    path = store.path_of(other)
    assert path is not None
    assert read_model(path).architecture == "toy"
    import_file(first, "again", registry, store)
    assert remove(plan_removal(["other"], registry, store), store) == 0
    assert store.path_of(other) is not None
    assert remove(plan_removal(["again"], registry, store), store) > 0
    assert list((store.root / "blobs").iterdir()) == []


@pytest.fixture(scope="module")
def shards(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """SmolLM2 in three files."""
    folder = tmp_path_factory.mktemp("shards")
    yield split_gguf(smollm2_path, folder, "smollm2", 100)
    shutil.rmtree(folder)


def text_of(target: str | Path) -> str:
    options = LoadOptions(n_ctx=512, gpu_layers=0, threads=1)
    launch = LaunchOptions(target=str(target), draft="off", load=options, offline=True)
    assistant = load(make_plan(launch)).assistant
    try:
        reply = ReplyOptions(SamplingParams(temperature=0.0), max_tokens=24)
        return assistant.reply("Why is the sky blue?", reply).text
    finally:
        assistant.close()


@pytest.mark.slow
@pytest.mark.weights
def test_llama_cpp_opens_shards_from_a_folder_an_import_and_the_store(
    smollm2_path: Path, shards: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = text_of(smollm2_path)
    assert len(whole) > 20
    assert text_of(shards[0]) == whole
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path))
    import_file(shards[0], "mine", load_registry(), Store(tmp_path))
    assert text_of("mine") == whole
    entries = [
        entry_for(path.read_bytes(), HubSource("a/b-GGUF", f"elsewhere-{number}.gguf", None))
        for number, path in enumerate(shards)
    ]
    stick = tmp_path / "stick"
    stick.mkdir()
    for number, path in enumerate(shards):
        (stick / f"elsewhere-{number}.gguf").symlink_to(path)
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "other"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("LOCALSPEC_MIRRORS", str(stick))
    (path,) = fetch([of_shards("split", entries)], offline=True)
    assert path.is_relative_to(tmp_path / "other")
    assert text_of(path) == whole
