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
REGISTRY, EMPTY = Registry(MODELS, PAIRS, "large"), Registry({}, {}, "")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.gguf"
    path.write_bytes(model_file())
    return path


def add_all(store: Store, *names: str) -> None:
    for name in names:
        add(store, MODELS[name], DATA[name])


def names(store: Store, registry: Registry = REGISTRY) -> list[str]:
    return [item.name for item in inventory(registry, store)]


def rm(store: Store, *wanted: str, registry: Registry = REGISTRY) -> tuple[int, list[str]]:
    removal = plan_removal(wanted, registry, store)
    planned = removal.frees_bytes
    assert remove(removal, store) == planned
    return planned, [f"{item.name}: {why}" for item, why in removal.stays]


def places(store: Store) -> list[tuple[str, int]]:
    return [(item.where, item.here_bytes) for item in inventory(REGISTRY, store)]


def test_a_pair_goes_with_all_its_models_and_what_another_uses_stays(store: Store) -> None:
    assert rm(store, "large") == (0, []), "nothing is here"
    add_all(store, "large", "small")
    assert rm(store, "large") == (1000, [])
    assert names(store) == []
    add_all(store, "large", "other", "small")
    assert rm(store, "large") == (500, ["small: pair other-pair uses it"])
    assert names(store) == ["other", "small"]
    assert rm(store, "small") == (0, ["small: pair other-pair uses it"])
    assert rm(store, "small", "other-pair") == (1000, [])
    add_all(store, "small")
    assert rm(store, "small") == (500, []), "a pair that is not here uses nothing"


def test_a_name_that_shares_its_file_goes_alone(store: Store, file: Path) -> None:
    entry = entry_for(model_file(), name="known")
    registry = Registry({"known": entry}, {}, "")
    add(store, entry, model_file())
    import_file(file, "mine", registry, store)
    assert rm(store, "known", registry=registry) == (0, ["known: mine is the same file"])
    assert rm(store, "mine", registry=registry) == (0, [])
    assert names(store, registry) == ["known"]
    assert rm(store, "known", registry=registry) == (entry.size_bytes, [])


def test_a_file_of_others_stays(store: Store, tmp_path: Path, file: Path) -> None:
    import_file(file, "mine", REGISTRY, store)
    assert places(store) == [("link", len(model_file()))]
    assert rm(store, "mine") == (0, [])
    blob = tmp_path / "hub" / "models--a--b" / "blobs" / MODELS["large"].sha256
    blob.parent.mkdir(parents=True)
    blob.write_bytes(DATA["large"])
    store.adopt(MODELS["large"], blob)
    assert places(store) == [("hub cache", 500)]
    assert rm(store, "large") == (0, [])
    assert store.path_of(MODELS["large"]) is None
    path = add(store, MODELS["large"], DATA["large"])
    (tmp_path / "theirs").hardlink_to(path)
    assert rm(store, "large") == (0, [])
    assert file.exists()
    assert blob.exists()


def test_what_was_begun_or_forgotten_goes_too(store: Store) -> None:
    begin(store, MODELS["large"], DATA["large"][:300])
    assert places(store) == [("unfinished", 300)]
    assert rm(store, "large") == (300, [])
    assert names(store) == []
    add_all(store, "large")
    (name,) = names(store, EMPTY)
    assert name == f"sha256:{MODELS['large'].sha256[:12]}"
    for unknown in ("nobody", "", "../..", "sha256:", "/"):
        with pytest.raises(ModelUnavailable, match=f"here are {name}"):
            rm(store, name, unknown, registry=EMPTY)
    assert rm(store, name, registry=EMPTY) == (500, [])
