"""A model in several files: judged whole by its headers, and the same text from real weights."""

import shutil
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from lab.synthetic.gguf_layout import read_layout
from lab.synthetic.gguf_writer import NewTensor, copied, write_gguf
from localspec.errors import ModelFileError, UsageError
from localspec.launch.load import load
from localspec.models.entries import HubSource, ModelEntry, of_shards
from localspec.models.gguf import read_header, read_model
from localspec.models.inventory import inventory, plan_removal, remove
from localspec.models.names import import_file
from localspec.models.obtain import obtain
from localspec.models.pull import fetch
from localspec.models.registry import Registry, load_registry
from localspec.models.store import Store
from localspec.models.transfer import Progress
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from localspec.plan.facts import free_memory
from localspec.plan.fit import PairLoad
from localspec.plan.make import make_plan
from tests.llama import tiny_llama
from tests.models.gguf_builder import Raw, build, model_file, model_values
from tests.models.shapes import LLAMA_1B, sparse_model
from tests.models.sources import entry_for

FIRST, SECOND, THIRD = (f"toy-{number:05}-of-00003.gguf" for number in (1, 2, 3))


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
    for number, name in enumerate((FIRST, SECOND, THIRD)):
        (folder / name).write_bytes(shard(number, 3))
    return folder


def test_all_headers_are_one(tmp_path: Path) -> None:
    (tmp_path / "toy.gguf").write_bytes(model_file())
    assert len(read_model(tmp_path / "toy.gguf").tensors) == 1
    narrow = replace(LLAMA_1B, n_embd=256, n_ff=512, n_vocab=1000)
    whole = sparse_model(tmp_path / "whole.gguf", narrow)
    (tmp_path / "split").mkdir()
    first, *others = split_gguf(whole, tmp_path / "split", "m", 40)
    assert len(others) == 3
    header = read_model(first)
    assert [t.name for t in header.tensors] == [t.name for t in read_header(whole).tensors]
    assert header.size_bytes == sum(each.stat().st_size for each in (first, *others))
    pairs = [
        PairLoad.of(read_model(path), options=LoadOptions(gpu_layers=0)) for path in (whole, first)
    ]
    plans = [pair.fit(free_memory()) for pair in pairs]
    one, other = (plan and plan.uses[0].needed_bytes for plan in plans)
    assert one == other
    assert one


def test_a_shard_that_cannot_be_opened_says_why(folder: Path) -> None:
    def refused(name: str, word: str) -> None:
        with pytest.raises(ModelFileError, match=word):
            read_model(folder / name)

    refused(SECOND, "is file 2 of 3 of a model: give the first, toy-00001-of-000")
    for name in ("renamed.gguf", "toy-00001-of-00002.gguf"):
        shutil.copyfile(folder / FIRST, folder / name)
        refused(name, "is file 1 of 3 of a model, .* names that end in -00001-of-00003.gguf: name")
    (folder / THIRD).unlink()
    refused(FIRST, r"and toy-00003-of-00003\.gguf is not beside it")
    second = folder / SECOND
    for target, word in ((folder / FIRST, "is not file 2 of 3"), (second, "is not beside it")):
        second.unlink()
        second.symlink_to(target)
        refused(FIRST, word)
    second.unlink()
    second.write_bytes(model_file())
    refused(FIRST, "is not file 2 of 3")
    # An absurd number of shards costs nothing.
    absurd = folder / "toy-00001-of-99999.gguf"
    for count, word in ((Raw(10, bytes(7) + b"\x80"), "name them so"), (99999, "beside")):
        absurd.write_bytes(build({**model_values(), "split.count": count}))
        refused(absurd.name, word)


@pytest.mark.parametrize("copy", [False, True])
def test_an_imported_split_model_is_one_name(folder: Path, store: Store, copy: bool) -> None:
    registry = load_registry()
    imported = import_file(folder / FIRST, "mine", registry, store, copy=copy)
    (item,) = inventory(registry, store)
    assert (item.name, item.where) == ("mine", "store" if copy else "link")
    assert item.here_bytes == sum(path.stat().st_size for path in folder.iterdir())
    path = store.path_of(imported)
    assert path is not None
    assert path.name == "model-00001-of-00003.gguf"
    assert read_model(path).architecture == "toy"
    with (folder / THIRD).open("ab") as changed:
        changed.write(b"\0")
    with pytest.raises(UsageError, match="the name mine is taken"):
        import_file(folder / FIRST, "mine", registry, store)
    if copy:  # a file that another split uses stays
        other = import_file(folder / FIRST, "other", registry, store, copy=True)
        removal = plan_removal(["mine"], registry, store)
        assert removal.frees_bytes == (folder / THIRD).stat().st_size - 1
        import_file(folder / FIRST, "again", registry, store)
        assert remove(plan_removal(["other"], registry, store), store) == 0
        assert store.path_of(other) is not None
        freed = remove(plan_removal(["again"], registry, store), store)
        assert freed == (folder / THIRD).stat().st_size
    assert (remove(plan_removal(["mine"], registry, store), store) > 0) == copy
    assert inventory(registry, store) == []
    assert len(list(folder.iterdir())) == 3


def test_all_shards_arrive(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror, shards = tmp_path / "mirror", list[ModelEntry]()
    mirror.mkdir()
    pieces = [bytes([number]) * 1000 for number in range(1, 4)]
    for number, data in enumerate(pieces, 1):
        name = f"big-0000{number}-of-00003"
        (mirror / f"{name}.gguf").write_bytes(data)
        shards.append(entry_for(data, HubSource("o/r", f"Q4/{name}.gguf", None), name=name))
    entry = structs.replace(entry_for(b"".join(pieces), name="big"), shards=tuple(shards))
    registry = Registry({"big": entry}, {}, "")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("LOCALSPEC_MIRRORS", str(mirror))
    moments: list[Progress] = []

    def here() -> list[tuple[str, int]]:
        return [(item.where, item.here_bytes) for item in inventory(registry, store)]

    path = obtain(entry, store, True, moments.append)
    assert path == store.path_of(entry)
    assert path.name == "model-00001-of-00003.gguf"
    assert [each.read_bytes() for each in sorted(path.parent.iterdir())] == pieces
    reason = "hub o/r: not in the hub's cache, offline"
    assert moments[-1] == Progress("big", 3000, 3000, f"mirror {mirror}", reason)
    assert here() == [("store", 3000)]
    (store.root / "blobs" / shards[1].sha256).unlink()
    assert store.path_of(entry) is None
    assert here() == [("unfinished", 2000)]
    assert obtain(entry, store, True) == path
    assert remove(plan_removal(["big"], registry, store), store) == 3000
    assert here() == []
    assert not path.parent.exists()


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
def test_real_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = tiny_llama.write(tmp_path / "tiny.gguf")
    shards, whole = split_gguf(tiny, tmp_path, "shard", 8), text_of(tiny)
    assert (len(shards), whole != "") == (3, True)
    assert text_of(shards[0]) == whole
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path))
    import_file(shards[0], "mine", load_registry(), Store(tmp_path))
    assert text_of("mine") == whole
    stick, entries = tmp_path / "stick", list[ModelEntry]()
    stick.mkdir()
    for number, path in enumerate(shards):
        name = f"elsewhere-{number}.gguf"
        (stick / name).symlink_to(path)
        entries.append(entry_for(path.read_bytes(), HubSource("a/b-GGUF", name, None)))
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "other"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("LOCALSPEC_MIRRORS", str(stick))
    (path,) = fetch([of_shards("split", entries)], offline=True)
    assert path.is_relative_to(tmp_path / "other")
    assert text_of(path) == whole


# Splits a GGUF file as llama.cpp's `llama-gguf-split` does: metadata in the first, tensors in order.


def split_gguf(file: Path, folder: Path, stem: str, tensors_each: int) -> list[Path]:
    """Write a model into several files of at most so many tensors, and return them in order."""
    layout, paths = read_layout(file), list[Path]()
    starts = range(0, len(layout.tensors), tensors_each)
    for number, start in enumerate(starts):
        path = folder / f"{stem}-{number + 1:05}-of-{len(starts):05}.gguf"
        values = {
            **(layout.values if number == 0 else {}),
            "split.no": struct.pack("<IH", 2, number),
            "split.tensors.count": struct.pack("<Ii", 5, len(layout.tensors)),
            "split.count": struct.pack("<IH", 2, len(starts)),
        }
        with file.open("rb") as weights, path.open("wb") as out:
            part = layout.tensors[start : start + tensors_each]
            tensors = [NewTensor(each.name, each, copied(weights, each)) for each in part]
            list(write_gguf(out, layout.version, values, tensors, layout.alignment))
        paths.append(path)
    return paths
