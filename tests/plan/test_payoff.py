"""Whether a draft model is worth its download, before it is here; what a start and `pull` make of it is in the golden table."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from localspec.calibration.calibrated import Measurements, StoredCosts
from localspec.cli.main import localspec
from localspec.decoding.costs import PassCosts
from localspec.models.registry import Registry, load_registry
from localspec.models.requested import with_full_names
from localspec.options import LaunchOptions, LoadOptions
from localspec.plan.make import make_plan
from localspec.plan.payoff import could_pay
from tests.models.gguf_builder import model_file

CODER = "qwen2.5-coder-1.5b"
CHEAP = PassCosts((1, 32), (1.0, 1.1))
DEAR = PassCosts((1, 32), (1.0, 32.0))
NEAR = PassCosts((1, 2, 4, 8, 16, 24, 32), (0.03, 0.048, 0.078, 0.12, 0.15, 0.22, 0.26))


class Measured(Measurements):
    """What was measured of the target, and of another model."""

    def __init__(self, target: StoredCosts | None = None, other: PassCosts | None = None) -> None:
        self._target, self._other = target, other

    def of(self, *_: object) -> StoredCosts | None:
        return self._target

    def largest(self, _options: LoadOptions) -> PassCosts | None:
        return self._other


def pays(
    pair: str, measured: Measured, *, on_gpu: bool = False, registry: Registry | None = None
) -> bool | None:
    """Say whether the draft model of a pair could pay."""
    registry = registry or load_registry()
    entry = registry.pair(pair)
    target, draft_model = registry.model(entry.target), registry.model(entry.draft_model or "")
    options, path = LoadOptions(), Path("target")
    return could_pay(target, draft_model, options, measured, path=path, on_gpu=on_gpu)


@pytest.mark.parametrize(
    ("pair", "could"),
    [
        (CODER, False),  # 0.44 of the target
        ("smollm2-1.7b", None),  # 0.37
        ("qwen2.5-coder-7b", True),  # 0.10
        ("llama3.1-8b", True),  # 0.16
    ],
)
def test_where_nothing_was_measured_a_cpu_is_taken_as_it_is_known_and_on_a_gpu_it_could(
    pair: str, could: bool | None
) -> None:
    assert pays(pair, Measured()) is could
    assert pays(pair, Measured(), on_gpu=True)


@pytest.mark.parametrize(
    ("stored", "could"),
    [
        (StoredCosts(CHEAP, 2), False),  # beside busy programs: it does not count
        (StoredCosts(CHEAP, 1), False),
        (StoredCosts(CHEAP), True),
        (StoredCosts(DEAR), False),
        (StoredCosts(NEAR), None),
    ],
)
def test_costs_that_were_measured_on_a_quiet_machine_decide(
    stored: StoredCosts, could: bool | None
) -> None:
    assert pays(CODER, Measured(stored)) is could
    assert pays(CODER, Measured(stored, other=DEAR)) is (could if stored.sure else False)
    assert pays(CODER, Measured(stored, other=CHEAP)) is (could if stored.sure else True)
    assert pays(CODER, Measured(stored), on_gpu=True) is (could if stored.sure else True)


HEADS = """
default_pair = "p"
[models.t]
repo = "a/t"
file = "t.gguf"
size_bytes = 4000000000
sha256 = "{}"
[models.h]
repo = "a/h"
file = "h.gguf"
size_bytes = 80000000
sha256 = "{}"
heads = {{ kind = "KIND", target = "t", source = "a test", date = "2026-11" }}
[pairs.p]
target = "t"
draft_model = "h"
""".format("a" * 64, "b" * 64)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of settings, and of data."""
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    return tmp_path


@pytest.mark.parametrize(
    ("kind", "costs", "could"),
    [("eagle3", CHEAP, True), ("eagle3", DEAR, False), ("dflash", CHEAP, True)],
)
def test_heads_in_a_file_of_their_own_are_judged_as_draft_models_are(
    kind: str, costs: PassCosts, could: bool, folder: Path
) -> None:
    (folder / "models.toml").write_text(HEADS.replace("KIND", kind))
    assert pays("p", Measured(StoredCosts(costs)), registry=load_registry()) is could


def test_a_name_means_the_same_in_every_directory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "models.toml").write_text('[aliases]\nmine = "user/repo:Q8_0"\n')
    monkeypatch.chdir(folder)
    (folder / CODER).touch()
    assert with_full_names(LaunchOptions(target=CODER)).target == CODER
    assert with_full_names(LaunchOptions(target="mine")).target == "user/repo:Q8_0"


def test_a_start_takes_the_older_file_that_is_here_and_says_once_that_there_is_a_newer(
    folder: Path,
) -> None:
    data, sha256 = model_file(architecture="toy"), "c" * 64
    registry = HEADS.replace("[models.t]", '[models."t:new"]').replace("KIND", "eagle3")
    older = f'repo = "a/t"\nfile = "old.gguf"\nsize_bytes = {len(data)}\nsha256 = "{sha256}"\n'
    (folder / "models.toml").write_text(f'{registry}[models."t:old"]\n{older}older = true\n')
    file = folder / "data" / "blobs" / sha256
    file.parent.mkdir(parents=True)
    file.write_bytes(data)
    note = "there is a newer file of t, with heads that draft for it: "
    note += "`localspec pull t:new h` downloads 4.1 GB"
    for notes in ((note,), ()):
        plan = make_plan(LaunchOptions("p", offline=True, fit=False))
        assert (plan.target, plan.draft_model, plan.notes) == (file, None, notes)
    assert "t:new, 4.0 GB" in CliRunner().invoke(localspec, ["show", "t"]).stdout
