from pathlib import Path

import pytest

from localspec.models.registry import Registry, parse_registry
from localspec.ui.model_switch import nothing_is_here
from localspec.ui.pairs import choices, judged

GB = 1_000_000_000
REGISTRY = """
default_pair = "small"

[models.tiny]
size_bytes = 100000000
sha256 = "{0}"
repo = "a/tiny"
file = "tiny.gguf"

[models.huge]
size_bytes = 500000000000
sha256 = "{1}"
repo = "a/huge"
file = "huge.gguf"

[pairs.small]
target = "tiny"
good_for = "a first try"

[pairs.large]
target = "huge"
draft_model = "tiny"
good_for = "much"
caveat = "but slow"
"""


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("localspec.ui.pairs.free_ram_bytes", lambda: 8 * GB)
    return parse_registry(REGISTRY.format("a" * 64, "b" * 64), "test")


def test_the_default_comes_first_and_what_does_not_fit_last(registry: Registry) -> None:
    small, large = choices(registry)
    assert (small.name, small.default, small.fits, small.here) == ("small", True, None, False)
    assert (large.name, large.fits, large.size_bytes) == ("large", False, 500_100_000_000)


def test_a_pair_tells_what_it_needs_and_why_it_does_not_fit(registry: Registry) -> None:
    hints = [each.hint for each in choices(registry)]
    assert hints == [
        "100 MB to fetch · needs at least 100 MB of memory, 8.0 GB are free · a first try",
        (
            "500.1 GB to fetch · does not fit · "
            "needs at least 500.1 GB of memory, 8.0 GB are free · much; but slow"
        ),
    ]


def test_without_headers_a_choice_stays_as_it_was(registry: Registry) -> None:
    assert list(judged(choices(registry), registry)) == []


def test_a_pair_is_installed_when_all_of_its_files_are(registry: Registry, tmp_path: Path) -> None:
    assert nothing_is_here(registry)
    blobs = tmp_path / "data" / "blobs"
    blobs.mkdir(parents=True)
    with (blobs / ("a" * 64)).open("wb") as file:
        file.truncate(100_000_000)
    assert not nothing_is_here(registry)


@pytest.mark.weights
def test_a_pair_that_is_here_is_predicted_from_its_header(smollm2_path: Path) -> None:
    found = [each for each in choices() if each.name == "smollm2-135m"]
    (judgement,) = judged(found)
    assert judgement.here
    assert judgement.fits
    assert "needs RAM: " in judgement.why
