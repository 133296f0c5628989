"""Whether a draft model is worth its download, before it is here."""

import importlib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from localspec.cli.root import localspec
from localspec.decoding.costs import PassCosts
from localspec.errors import ModelUnavailable
from localspec.launch import plan as planning
from localspec.launch import worth
from localspec.launch.plan import make_plan
from localspec.models.registry import load_registry
from localspec.options import LaunchOptions, LoadOptions

pulling = importlib.import_module("localspec.cli.pull")

CODER = "qwen2.5-coder-1.5b"
WIDE_IS_CHEAP = PassCosts((1, 32), (1.0, 1.1))
WIDE_IS_DEAR = PassCosts((1, 32), (1.0, 32.0))


@pytest.fixture(autouse=True)
def _on_a_cpu_with_nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setattr(worth, "supports_offload", lambda: False)


@pytest.mark.parametrize(
    ("pair", "could"),
    [
        (CODER, False),  # 0.44 of the target
        ("smollm2-1.7b", False),  # 0.37
        ("qwen2.5-coder-7b", True),  # 0.10
        ("qwen3-8b", True),  # 0.08
        ("gemma3-4b", True),  # 0.10
        ("llama3.1-8b", True),  # 0.16
    ],
)
def test_where_nothing_was_measured_a_cpu_is_taken_as_it_is_known(pair: str, could: bool) -> None:
    registry = load_registry()
    entry = registry.pair(pair)
    assert entry.draft_model is not None
    models = registry.model(entry.target), registry.model(entry.draft_model)
    assert worth.draft_model_could_pay(*models) is could


def test_on_a_gpu_it_could(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worth, "supports_offload", lambda: True)
    registry = load_registry()
    models = registry.model(CODER), registry.model("qwen2.5-coder-0.5b")
    assert worth.draft_model_could_pay(*models)
    assert not worth.draft_model_could_pay(*models, LoadOptions(gpu_layers=0))


@pytest.mark.parametrize(("costs", "could"), [(WIDE_IS_CHEAP, True), (WIDE_IS_DEAR, False)])
def test_what_was_measured_here_decides(
    costs: PassCosts, could: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    registry = load_registry()
    target = registry.model(CODER)
    blobs = tmp_path / "data/blobs"
    blobs.mkdir(parents=True)
    with (blobs / target.sha256).open("wb") as file:
        file.truncate(target.size_bytes)
    monkeypatch.setattr(worth, "cached_costs", lambda file, *_: file and costs)
    draft_model = registry.model("qwen2.5-coder-0.5b")
    assert worth.draft_model_could_pay(target, draft_model) is could
    # Nothing is fetched unasked beside a target that is here; what could pay is told.
    told = worth.without_draft_model(CODER, target, draft_model)
    assert told is not None
    assert ("could make answers faster on this machine: `localspec pull" in told) is could
    assert worth.without_draft_model(CODER, target, draft_model) == ""  # it was told


@pytest.mark.parametrize(
    ("request_", "fetched"),
    [
        (LaunchOptions(CODER), [CODER]),
        (LaunchOptions(CODER, draft="model"), [CODER, "qwen2.5-coder-0.5b"]),
        (LaunchOptions(CODER, further=("model:2",)), [CODER, "qwen2.5-coder-0.5b"]),
        (
            LaunchOptions(CODER, draft_model="qwen2.5-coder-0.5b"),
            [CODER, "qwen2.5-coder-0.5b"],
        ),
        (LaunchOptions("qwen3-8b"), ["qwen3-8b", "qwen3-0.6b"]),
    ],
)
def test_only_what_could_pay_or_was_asked_for_is_fetched(
    request_: LaunchOptions, fetched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(models: list[Any], **_: object) -> list[Path]:
        assert [each.base for each in models] == fetched
        raise ModelUnavailable("enough")

    monkeypatch.setattr(planning, "fetch", fetch)
    with pytest.raises(ModelUnavailable, match="enough"):
        make_plan(request_)


@pytest.mark.parametrize(
    ("flags", "fetched", "told"),
    [([], [CODER], True), (["--with-draft"], [CODER, "qwen2.5-coder-0.5b"], False)],
)
def test_pull_leaves_out_what_would_not_pay_and_says_how_to_fetch_it(
    flags: list[str], fetched: list[str], told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulled: list[str] = []

    def fetch(models: list[Any], **_: object) -> list[Path]:
        pulled.extend(each.base for each in models)
        return []

    monkeypatch.setattr(pulling, "fetch", fetch)
    monkeypatch.setattr("localspec.cli.pull_preview.Preview.after", lambda _: None)
    done = CliRunner().invoke(localspec, ["pull", "--offline", CODER, *flags])
    assert done.exit_code == 0, done.stderr
    assert pulled == fetched
    line = (
        "localspec: the draft model qwen2.5-coder-0.5b (491 MB) is not downloaded, because it would not "
        f"make this machine faster: `localspec pull {CODER} --with-draft` downloads it"
    )
    assert (line in done.stderr.splitlines()) is told
