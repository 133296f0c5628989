"""What `bench` borrows from `lab/`: there in a checkout, refused in one line without one."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import lab.peers
import lab.synthetic
from lab import recommendations
from lab.peers.setting import PEER_FLAGS
from localspec.bench.bench import Peers, peers
from localspec.bench.instruments import instrument
from localspec.bench.loading import SyntheticModels, synthetic_models
from localspec.bench.modes import PEER_MODES
from localspec.errors import UsageError
from localspec.models.registry import load_registry
from tests.cli.command import environment

# Type checkers see here that the packages are what `bench` takes them for.
PEERS: Peers = lab.peers
SYNTHETIC: SyntheticModels = lab.synthetic

ROOT = Path(__file__).parents[2]


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    """Return a folder that has the package as a wheel installs it, and nothing else of the repository."""
    shutil.copytree(
        ROOT / "localspec", tmp_path / "localspec", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(ROOT / "models.toml", tmp_path / "localspec")
    return tmp_path


def bench(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "localspec", "bench", *arguments],
        env=environment({"PYTHONPATH": str(folder), "LOCALSPEC_DATA_DIR": str(folder / "data")}),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_checkout_has_both() -> None:
    assert peers() is PEERS
    assert synthetic_models() is SYNTHETIC


def test_the_server_knows_every_mode_that_bench_lists() -> None:
    assert tuple(PEER_FLAGS) == PEER_MODES


@pytest.mark.first(1)
@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("--against", "llama-server=/bin/true"), "--against"),
        (("--synthetic", "2"), "a synthetic model"),
        (("--draft-model", "random"), "a synthetic model"),
    ],
)
def test_without_a_checkout_an_instrument_is_refused_in_one_line(
    shipped: Path, arguments: tuple[str, ...], option: str
) -> None:
    ended = bench(shipped, *arguments)
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert f"{option} needs an instrument that comes with a checkout" in ended.stderr


@pytest.mark.slow
def test_a_stranger_called_lab_is_never_imported(shipped: Path) -> None:
    stranger = shipped / "lab"
    stranger.mkdir()
    (stranger / "__init__.py").write_text("raise SystemExit('imported')")
    (shipped / "aside").mkdir()
    (shipped / "localspec").rename(shipped / "aside" / "localspec")
    ended = subprocess.run(
        [sys.executable, "-m", "localspec", "bench", "--against", "llama-server=/bin/true"],
        env=environment({"PYTHONPATH": f"{shipped}:{shipped / 'aside'}"}),
        cwd=shipped,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert "comes with a checkout" in ended.stderr


def test_an_instrument_that_is_broken_is_not_taken_for_missing() -> None:
    with pytest.raises(ModuleNotFoundError, match="nothing_of_the_kind"):
        instrument("nothing_of_the_kind", "--against")


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localspec.bench.instruments._LAB", Path("/elsewhere/lab"))
    with pytest.raises(UsageError, match="--against needs an instrument"):
        peers()


def test_the_recommendations_in_the_measurements_are_those_of_today() -> None:
    document = (ROOT / "docs/measurements/recommendations.md").read_text()
    today = "\n".join(recommendations.table(load_registry()))
    assert today in document, "print them anew with `python -m lab.recommendations`"
