import dataclasses
from pathlib import Path

import pytest

from localspec.errors import ModelUnavailable
from localspec.models.entries import PairEntry
from localspec.models.inventory import inventory, plan_removal, remove
from localspec.models.names import import_file
from localspec.models.registry import Registry
from localspec.models.store import Store
from tests.models.gguf_builder import model_file
from tests.models.sources import add, begin, entry_for

DATA = {name: name.encode() * 100 for name in ("large", "other", "small")}
MODELS = {name: entry_for(data, name=name) for name, data in DATA.items()}
PAIRS = {
    "large": PairEntry("large", "large", "model", "small", "x"),
    "other-pair": PairEntry("other-pair", "other", "model", "small", "x"),
}
REGISTRY = Registry(MODELS, PAIRS, "large")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "data")


def has(store: Store, *names: str) -> None:
    for name in names:
        add(store, MODELS[name], DATA[name])


def names(store: Store, registry: Registry = REGISTRY) -> list[str]:
    return [item.name for item in inventory(registry, store)]


def rm(store: Store, *wanted: str, registry: Registry = REGISTRY) -> tuple[int, list[str]]:
    removal = plan_removal(wanted, registry, store)
    return remove(removal, store), [f"{item.name}: {why}" for item, why in removal.stays]


def test_a_pair_goes_with_all_its_models(store: Store) -> None:
    has(store, "large", "small")
    assert rm(store, "large") == (1000, [])
    assert names(store) == []


def test_what_a_whole_pair_uses_stays(store: Store) -> None:
    has(store, "large", "other", "small")
    assert rm(store, "large") == (500, ["small: pair other-pair uses it"])
    assert names(store) == ["other", "small"]
    assert rm(store, "small") == (0, ["small: pair other-pair uses it"])
    assert rm(store, "small", "other-pair") == (1000, [])


def test_a_pair_that_is_not_here_uses_nothing(store: Store) -> None:
    has(store, "small")
    assert rm(store, "small") == (500, [])


def test_a_name_that_shares_its_file_goes_alone(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "mine.gguf"
    file.write_bytes(model_file())
    entry = entry_for(file.read_bytes(), name="known")
    registry = Registry({"known": entry}, {}, "")
    add(store, entry, file.read_bytes())
    import_file(file, "mine", registry, store)
    assert rm(store, "known", registry=registry) == (0, ["known: mine is the same file"])
    assert rm(store, "mine", registry=registry) == (0, [])
    assert names(store, registry) == ["known"]
    assert rm(store, "known", registry=registry) == (entry.size_bytes, [])


def test_a_file_that_was_imported_by_link_stays(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "mine.gguf"
    file.write_bytes(model_file())
    import_file(file, "mine", REGISTRY, store)
    assert [item.where for item in inventory(REGISTRY, store)] == ["link"]
    assert rm(store, "mine") == (0, [])
    assert file.exists()
    assert names(store) == []


def test_a_file_in_the_hubs_cache_stays(store: Store, tmp_path: Path) -> None:
    blob = tmp_path / "hub" / "models--a--b" / "blobs" / MODELS["large"].sha256
    blob.parent.mkdir(parents=True)
    blob.write_bytes(DATA["large"])
    store.adopt(MODELS["large"], blob)
    assert [item.where for item in inventory(REGISTRY, store)] == ["hub cache"]
    assert rm(store, "large") == (0, [])
    assert blob.exists()
    assert store.path_of(MODELS["large"]) is None


def test_a_hard_link_to_a_file_of_others_frees_nothing(store: Store, tmp_path: Path) -> None:
    path = add(store, MODELS["large"], DATA["large"])
    (tmp_path / "theirs").hardlink_to(path)
    assert rm(store, "large") == (0, [])


def test_what_was_begun_goes_too(store: Store) -> None:
    begin(store, MODELS["large"], DATA["large"][:300])
    (item,) = inventory(REGISTRY, store)
    assert (item.where, item.here_bytes, item.path) == ("unfinished", 300, None)
    assert rm(store, "large") == (300, [])
    assert names(store) == []


def test_what_the_registry_forgot_can_still_be_removed(store: Store) -> None:
    has(store, "large")
    empty = Registry({}, {}, "")
    (name,) = names(store, empty)
    assert name == f"sha256:{MODELS['large'].sha256[:12]}"
    assert rm(store, name, registry=empty) == (500, [])


def test_what_is_not_here_is_nothing_to_remove(store: Store) -> None:
    assert rm(store, "large") == (0, [])


@pytest.mark.parametrize("name", ["nobody", "", "../..", "sha256:", "/"])
def test_an_unknown_name_removes_nothing(store: Store, name: str) -> None:
    has(store, "large")
    with pytest.raises(ModelUnavailable, match="here are large"):
        rm(store, "large", name)
    assert names(store) == ["large"]


def test_the_plan_says_how_much_it_frees(store: Store) -> None:
    has(store, "large", "small")
    removal = plan_removal(["large"], REGISTRY, store)
    assert removal.frees_bytes == 1000
    assert dataclasses.replace(removal, items=()).frees_bytes == 0
