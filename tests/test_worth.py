"""Whether a draft model is worth its download, before it is here."""

import importlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from localspec.calibration.calibrated import StoredCosts
from localspec.cli.main import localspec
from localspec.decoding.costs import PassCosts
from localspec.decoding.model import Role
from localspec.errors import ModelUnavailable
from localspec.launch import memories as memories_module
from localspec.launch import worth
from localspec.launch.names import with_full_names
from localspec.launch.plan import make_plan
from localspec.models.entries import ModelEntry
from localspec.models.recommend import ON_A_CPU, best
from localspec.models.registry import load_registry
from localspec.options import LaunchOptions, LoadOptions
from tests.models.gguf_builder import model_file

pulling = importlib.import_module("localspec.cli.pull")

CODER = "qwen2.5-coder-1.5b"
WIDE_IS_CHEAP = PassCosts((1, 32), (1.0, 1.1))
WIDE_IS_DEAR = PassCosts((1, 32), (1.0, 32.0))


@pytest.fixture(autouse=True)
def _on_a_cpu_with_nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setattr(worth, "offloads", lambda _: False)


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
    pair: str, could: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = load_registry()
    entry = registry.pair(pair)
    assert entry.draft_model is not None
    models = registry.model(entry.target), registry.model(entry.draft_model)
    assert worth.draft_model_could_pay(*models) is could
    monkeypatch.setattr(worth, "offloads", lambda options: options.gpu_layers != 0)
    assert worth.draft_model_could_pay(*models)
    assert worth.draft_model_could_pay(*models, LoadOptions(gpu_layers=0)) is could


def test_a_draft_model_that_is_here_is_taken_along_and_a_name_means_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "is not downloaded" in (worth.why_idle(CODER, *_pair()) or "")
    _place(tmp_path, _pair()[1])
    assert worth.why_idle(CODER, *_pair()) is None
    (tmp_path / "models.toml").write_text('[aliases]\nmine = "user/repo:Q8_0"\n')
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / CODER).touch()
    assert with_full_names(LaunchOptions(target=CODER)).target == CODER
    assert with_full_names(LaunchOptions(target="mine")).target == "user/repo:Q8_0"


def _pair() -> tuple[ModelEntry, ModelEntry]:
    registry = load_registry()
    return registry.model(CODER), registry.model("qwen2.5-coder-0.5b")


def _place(tmp_path: Path, model: ModelEntry) -> None:
    blobs = tmp_path / "data/blobs"
    blobs.mkdir(parents=True)
    with (blobs / model.sha256).open("wb") as file:
        file.truncate(model.size_bytes)


@pytest.fixture
def target_here(tmp_path: Path) -> tuple[ModelEntry, ModelEntry]:
    _place(tmp_path, _pair()[0])
    return _pair()


def test_a_measurement_beside_busy_programs_changes_nothing_and_near_break_even_none_is_praised(
    monkeypatch: pytest.MonkeyPatch, target_here: tuple[ModelEntry, ModelEntry]
) -> None:
    answers = [worth.draft_model_could_pay(*target_here)]
    near = PassCosts((1, 2, 4, 8, 16, 24, 32), (0.03, 0.048, 0.078, 0.12, 0.15, 0.22, 0.26))
    for costs, doubts in ((WIDE_IS_CHEAP, 2), (WIDE_IS_CHEAP, 1), (WIDE_IS_CHEAP, 0), (near, 0)):
        stored = StoredCosts(costs, doubts)
        monkeypatch.setattr(worth, "stored_costs", lambda *_, stored=stored: stored)
        answers.append(worth.draft_model_could_pay(*target_here))
    assert answers == [False, False, False, True, None]
    assert worth.without_draft_model(CODER, *target_here) == ""
    assert "may not make this machine faster" in (worth.why_idle(CODER, *target_here) or "")


@pytest.mark.parametrize(("costs", "could"), [(WIDE_IS_CHEAP, True), (WIDE_IS_DEAR, False)])
def test_costs_that_were_measured_here_decide(
    costs: PassCosts,
    could: bool,
    monkeypatch: pytest.MonkeyPatch,
    target_here: tuple[ModelEntry, ModelEntry],
) -> None:
    monkeypatch.setattr(worth, "stored_costs", lambda file, *_: file and StoredCosts(costs))
    assert worth.draft_model_could_pay(*target_here) is could
    # Beside a target that is here nothing is fetched unasked; a note says what could pay, once.
    note = worth.without_draft_model(CODER, *target_here) or ""
    assert ("could make answers faster on this machine: `localspec pull" in note) is could
    assert worth.without_draft_model(CODER, *target_here) == ""


@pytest.mark.parametrize(
    ("request_", "fetched"),
    [
        (LaunchOptions(CODER), [CODER]),
        (LaunchOptions(CODER, draft="model"), [CODER, "qwen2.5-coder-0.5b"]),
        (LaunchOptions(CODER, further=("model:2",)), [CODER, "qwen2.5-coder-0.5b"]),
        (LaunchOptions(CODER, draft_model="qwen2.5-coder-0.5b"), [CODER, "qwen2.5-coder-0.5b"]),
        (LaunchOptions("qwen3-8b"), ["qwen3-8b", "qwen3-0.6b"]),
    ],
)
def test_only_what_could_pay_or_was_asked_for_is_fetched(
    request_: LaunchOptions, fetched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(models: list[Any], **_: object) -> list[Path]:
        assert [each.base for each in models] == fetched
        raise ModelUnavailable("enough")

    monkeypatch.setattr("localspec.models.pull.fetch", fetch)
    with pytest.raises(ModelUnavailable, match="enough"):
        make_plan(request_)


@pytest.fixture
def pull(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[list[str], str]]:
    """Runs `localspec pull`; returns the names of what would be fetched, and what is said."""
    pulled: list[str] = []

    def fetch(models: list[Any], **_: object) -> list[Path]:
        pulled.extend(each.base for each in models)
        return []

    monkeypatch.setattr(pulling, "fetch", fetch)
    monkeypatch.setattr("localspec.cli.pull.Preview.after", lambda _: None)

    def run(*words: str) -> tuple[list[str], str]:
        done = CliRunner().invoke(localspec, ["pull", "--offline", *words])
        assert done.exit_code == 0, done.stderr
        return pulled, done.stderr

    return run


@pytest.mark.parametrize(
    ("flags", "fetched", "told"),
    [([], [CODER], True), (["--with-draft"], [CODER, "qwen2.5-coder-0.5b"], False)],
)
def test_pull_leaves_out_what_would_not_pay_and_says_how_to_fetch_it(
    flags: list[str], fetched: list[str], told: bool, pull: Callable[..., tuple[list[str], str]]
) -> None:
    pulled, said = pull(CODER, *flags)
    assert pulled == fetched
    assert (f"`localspec pull {CODER} --with-draft` downloads it" in said) is told


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


@pytest.mark.parametrize(
    ("kind", "costs", "fetched"),
    [
        ("eagle3", WIDE_IS_CHEAP, ["t", "h"]),
        ("eagle3", WIDE_IS_DEAR, ["t"]),
        ("dflash", WIDE_IS_CHEAP, ["t", "h"]),
    ],
)
def test_heads_in_a_file_of_their_own_are_pulled_where_they_could_pay(
    kind: str,
    costs: PassCosts,
    fetched: list[str],
    pull: Callable[..., tuple[list[str], str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "models.toml").write_text(HEADS.replace("KIND", kind))
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path))
    monkeypatch.setattr(worth, "_costs", lambda *_: costs)
    pulled, said = pull("p")
    assert pulled == fetched
    assert ("file of heads h (80 MB) is not downloaded" in said) is (fetched == ["t"])
    # A start decides likewise.
    pair = load_registry().pair("p")
    target, file = (load_registry().model(each) for each in (pair.target, pair.draft_model or ""))
    assert (worth.without_draft_model("p", target, file) is None) is (fetched == ["t", "h"])


def test_a_start_takes_the_older_file_that_is_here_and_says_once_that_there_is_a_newer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, sha256 = model_file(architecture="toy"), "c" * 64
    registry = HEADS.replace("[models.t]", '[models."t:new"]').replace("KIND", "eagle3")
    older = f'repo = "a/t"\nfile = "old.gguf"\nsize_bytes = {len(data)}\nsha256 = "{sha256}"\n'
    (tmp_path / "models.toml").write_text(f'{registry}[models."t:old"]\n{older}older = true\n')
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path))
    file = tmp_path / "data" / "blobs" / sha256
    file.parent.mkdir(parents=True)
    file.write_bytes(data)
    note = "there is a newer file of t, with heads that draft for it: "
    note += "`localspec pull t:new h` downloads 4.1 GB"
    for notes in ((note,), ()):
        plan = make_plan(LaunchOptions("p", offline=True, fit=False))
        assert (plan.target, plan.draft_model, plan.notes) == (file, None, notes)
    assert "t:new, 4.0 GB" in CliRunner().invoke(localspec, ["show", "t"]).stdout


def test_copying_memory_says_at_once_how_fast_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memories_module, "_COPIED_BYTES", 1 << 20)
    assert 1e7 < memories_module.copied_per_second(2) < 1e14
    of_thread = memories_module._COPIES * memories_module._COPIED_BYTES
    two = memories_module._FREE_SHARE * 2 * 2 * memories_module._COPIED_BYTES
    for free, threads, count in ((None, 3, 3), (two, 1, 1), (two, 64, 2), (0, 2, 1)):
        clock = iter(range(0, 99, 2)).__next__
        with monkeypatch.context() as patched:
            patched.setattr(memories_module, "free_ram_bytes", lambda free=free: free)
            patched.setattr(time, "perf_counter", clock)
            speed = memories_module.copied_per_second(threads)
        assert speed == count * of_thread / 2, "all bytes over the time of all, by the median"


def test_how_fast_a_memory_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    gpu = SimpleNamespace(name="GPU", total_bytes=4 << 30, free_bytes=3 << 30, shares_ram=False)
    monkeypatch.setattr(memories_module, "placed_on", lambda _: [gpu])
    monkeypatch.setattr(memories_module, "usable_ram_bytes", lambda: 8 << 30)
    free = iter((7 << 30, 1 << 30, 5 << 30, 5 << 30))
    monkeypatch.setattr(memories_module, "free_ram_bytes", lambda: next(free))
    monkeypatch.setattr(memories_module, "offloads", lambda _: True)
    passes = iter((1.0, 5.0))
    monkeypatch.setattr(memories_module, "copied_per_second", lambda _: next(passes))
    entry = ModelEntry("measured", 1_000_000_000, "0" * 64)
    item = SimpleNamespace(path=Path("x"), entry=entry)
    monkeypatch.setattr(memories_module, "inventory", lambda *_: [item])
    sure = False

    def costs(_: Path, options: LoadOptions, __: Role) -> StoredCosts:
        step_s = 0.5e9 if options.gpu_layers == 0 else 1e9 / 9
        return StoredCosts(PassCosts((1,), (step_s,)), doubts=0 if sure else 1)

    monkeypatch.setattr(memories_module, "stored_costs", costs)
    found = memories_module.memories(load_registry())
    assert [(each.name, each.bytes_per_s) for each in found] == [("GPU", 9.0), ("RAM", 2.0)]
    assert [each.total_bytes for each in found] == [4 << 30, 8 << 30]
    assert [each.free_bytes for each in found] == [3 << 30, 7 << 30]
    # Within the hour nothing is measured again, and what is free changes nothing else.
    again = memories_module.memories(load_registry())
    assert [replace(each, free_bytes=None) for each in again] == [
        replace(each, free_bytes=None) for each in found
    ]
    gpu.shares_ram, gpu.total_bytes = True, 16 << 30
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3601)
    ram_too, ram = memories_module.memories(load_registry())
    assert (ram_too.total_bytes, ram_too.most) == (ram.total_bytes, ram.most)
    # Copying is faster than passes beside other programs, and what wide ones cost is taken from another machine.
    assert (ram.bytes_per_s, ram.passes, ram.usual) == (5.0, {}, ON_A_CPU)
    assert (ram_too.usual, ram_too.is_usual_measured) == (None, False)
    # What was measured quiet counts alone, and is said of that model.
    sure = True
    monkeypatch.setattr(time, "time", lambda: now + 7300)
    ram = memories_module.memories(load_registry())[-1]
    costs_of_entry = PassCosts((1,), (0.5e9,))
    assert (ram.bytes_per_s, ram.passes) == (2.0, {entry.sha256: costs_of_entry})
    assert (ram.usual, ram.is_usual_measured) == (costs_of_entry, True)
    measured = best("measured", entry, [ram])
    assert measured is not None
    assert measured.is_measured
    assert measured.tokens_per_s == 2e-9
