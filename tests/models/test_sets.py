import hashlib
from pathlib import Path

import pytest
from msgspec.structs import replace

from localspec.models.entries import HubSource, ModelEntry
from localspec.models.inventory import inventory, plan_removal, remove
from localspec.models.obtain import obtain
from localspec.models.registry import Registry
from localspec.models.store import Store
from localspec.models.transfer import Progress
from tests.models.sources import entry_for

PIECES = [bytes([number]) * 1000 for number in range(1, 4)]


@pytest.fixture
def entry(tmp_path: Path) -> ModelEntry:
    shards = []
    (tmp_path / "mirror").mkdir()
    for number, data in enumerate(PIECES, 1):
        name = f"big-0000{number}-of-00003.gguf"
        (tmp_path / "mirror" / name).write_bytes(data)
        shards.append(entry_for(data, HubSource("o/r", f"Q4/{name}", None), name=name[:-5]))
    whole = entry_for(b"".join(PIECES), name="big")
    return replace(whole, shards=tuple(shards))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "data")


def test_all_shards_arrive_under_the_names_that_llama_cpp_looks_for(
    entry: ModelEntry, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("LOCALSPEC_MIRRORS", str(tmp_path / "mirror"))
    assert store.path_of(entry) is None
    seen: list[Progress] = []
    path = obtain(entry, store, True, seen.append)
    assert path == store.path_of(entry)
    assert path.name == "model-00001-of-00003.gguf"
    assert [each.read_bytes() for each in sorted(path.parent.iterdir())] == PIECES
    reason = "hub o/r: not in the hub's cache, offline"
    assert seen[-1] == Progress("big", 3000, 3000, f"mirror {tmp_path / 'mirror'}", reason)
    registry = Registry({"big": entry}, {}, "")
    (item,) = inventory(registry, store)
    assert (item.name, item.where, item.here_bytes) == ("big", "store", 3000)
    blob = store.root / "blobs" / hashlib.sha256(PIECES[1]).hexdigest()
    blob.unlink()
    assert store.path_of(entry) is None
    (item,) = inventory(registry, store)
    assert (item.where, item.here_bytes) == ("unfinished", 2000)
    assert obtain(entry, store, True, seen.append) == path
    assert remove(plan_removal(["big"], registry, store), store) == 3000
    assert inventory(registry, store) == []
    assert not path.parent.exists()
