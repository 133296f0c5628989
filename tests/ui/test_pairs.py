from pathlib import Path

import pytest

from localspec.models.recommend import Memory
from localspec.models.registry import Registry, parse_registry
from localspec.ui.pairs import PairChoice, choices

GB = 1_000_000_000
REGISTRY = """
default_pair = "toy"

[models.tiny]
size_bytes = 100000000
sha256 = "{0}"
repo = "a/tiny"
file = "tiny.gguf"

[models.middle]
size_bytes = 2000000000
sha256 = "{1}"
repo = "a/middle"
file = "middle.gguf"

[models.huge]
size_bytes = 500000000000
sha256 = "{2}"
repo = "a/huge"
file = "huge.gguf"

[pairs.toy]
target = "tiny"
good_for = "a demonstration"

[pairs.large]
target = "huge"
draft_model = "tiny"
good_for = "much"
caveat = "but slow"

[pairs.plain]
target = "tiny"
good_for = "little"

[pairs.best]
target = "middle"
draft_model = "tiny"
good_for = "chat"
caveat = "notes of maintainers"
recommend = "chat"
"""


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("localspec.ui.pairs.free_ram_bytes", lambda: 8 * GB)
    return parse_registry(REGISTRY.format("a" * 64, "b" * 64, "c" * 64), "test")


def memory(speed: float | None) -> list[Memory]:
    return [Memory("RAM", 8 * GB, speed)]


def test_what_suits_this_machine_comes_first_then_the_toy_and_what_does_not_fit(
    registry: Registry,
) -> None:
    assert [each.name for each in choices((), registry)] == ["plain", "best", "toy", "large"]
    found = choices(memory(28 * GB), registry)
    assert [each.name for each in found] == ["best", "plain", "toy", "large"]
    assert [each.recommended for each in found] == [True, False, False, False]
    assert [each.tokens_per_s for each in found] == [14, 280, 280, None]
    assert [each.fits for each in found] == [True, True, True, False]
    assert [each.drafts for each in found] == [True, None, None, None]


def test_what_the_user_has_comes_first_imported_models_too(
    registry: Registry, tmp_path: Path
) -> None:
    blobs = tmp_path / "data" / "blobs"
    blobs.mkdir(parents=True)
    for sha256, size in (("a", 100_000_000), ("c", 500 * GB), ("d", 10)):
        with (blobs / (sha256 * 64)).open("wb") as file:
            file.truncate(size)
    (tmp_path / "data" / "imports.toml").write_text(
        f'[models.mine]\norigin = "/tmp/mine.gguf"\n[[models.mine.files]]\nsize_bytes = 10\nsha256 = "{"d" * 64}"\n'
    )
    found = choices(memory(28 * GB), registry)
    # The draft model of another is no model to choose, and the toy is not what anybody wanted.
    assert [each.name for each in found] == ["mine", "plain", "toy", "large", "best"]
    assert [each.own for each in found] == [True, True, False, True, False]


def test_one_line_has_all_that_matters_and_nothing_twice(registry: Registry) -> None:
    rows = [each.row(5, loaded=each.name == "toy") for each in choices(memory(28 * GB), registry)]
    assert rows == [
        "best ★ 2.0 GB  14/s  chat",
        "plain  100 MB 280/s  little",
        "toy  ● 100 MB 280/s  a demonstration",
        "large 500.0 GB        needs more memory than is free",
    ]


def test_the_first_choice_is_told_in_full(registry: Registry, tmp_path: Path) -> None:
    best = choices(memory(28 * GB), registry)[0]
    assert (
        best.hint
        == "2.0 GB to download · about 14 tokens/s here · chat · its draft model could make it faster"
    )
    blobs = tmp_path / "data" / "blobs"
    blobs.mkdir(parents=True)
    with (blobs / ("b" * 64)).open("wb") as file:
        file.truncate(2 * GB)
    best = choices(memory(None), registry)[0]
    assert best.hint == "here · chat · its draft model could make it faster"


def test_rows_fit_into_forty_columns() -> None:
    widest = max(choices(), key=lambda each: len(each.name))
    row = PairChoice(widest.name, 120 * GB, False, True, "chat", True, 9.9).row(len(widest.name))
    assert row.index("  chat") <= 34
