"""What a launch comes to, before any weights are read."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.calibration.calibrated import StoredCosts
from localspec.decoding.cancel import CancelFlag
from localspec.decoding.costs import PairCosts, PassCosts, draft_model_could_win
from localspec.errors import (
    ModelFileError,
    ModelLoadError,
    ModelUnavailable,
    PairMismatch,
    UsageError,
)
from localspec.launch import fit as fitting
from localspec.launch import plan as launch
from localspec.launch.drafting import DraftMode, draft_modes
from localspec.launch.load import _Loading, shared_chunk
from localspec.launch.plan import LoadPlan, make_plan
from localspec.models.fit import FitPlan, Machine, Place, PlaceUse
from localspec.models.registry import load_registry
from localspec.options import LaunchOptions, LoadOptions
from localspec.resources import Usage
from tests.models.gguf_builder import TOKENS, model_file
from tests.models.shapes import LLAMA_8B, sparse_model

SMALL, CODER = "smollm2-135m", "qwen2.5-coder-1.5b"
CODER_DRAFT = "qwen2.5-coder-0.5b"


@pytest.mark.parametrize(
    ("request_", "references", "mode"),
    [
        (LaunchOptions(), [SMALL], DraftMode("auto")),
        (LaunchOptions(draft="off"), [SMALL], DraftMode("off")),
        (LaunchOptions(draft="lookup"), [SMALL], DraftMode("lookup", 15)),
        (LaunchOptions(draft="lookup", draft_length=4), [SMALL], DraftMode("lookup", 4)),
        (LaunchOptions(CODER), [CODER, CODER_DRAFT], DraftMode("auto")),
        (LaunchOptions(CODER, draft="lookup"), [CODER], DraftMode("lookup", 15)),
        (LaunchOptions(CODER, draft="model"), [CODER, CODER_DRAFT], DraftMode("model", 3)),
        (LaunchOptions(CODER, draft="model:8"), [CODER, CODER_DRAFT], DraftMode("model", 8)),
        (LaunchOptions(CODER, draft_model="x.gguf"), [CODER, "x.gguf"], DraftMode("auto")),
        (LaunchOptions(CODER, draft_model="x", draft="model"), [CODER, "x"], DraftMode("model", 3)),
        (LaunchOptions(target="t.gguf"), ["t.gguf"], DraftMode("auto")),
        (LaunchOptions(target="t", draft_model="d"), ["t", "d"], DraftMode("auto")),
        (LaunchOptions(target="t", draft_model="d", draft="off"), ["t"], DraftMode("off")),
        (
            LaunchOptions(target="t", draft_model="d", draft="lookup"),
            ["t"],
            DraftMode("lookup", 15),
        ),
        (
            LaunchOptions(CODER, draft="off", further=("model",)),
            [CODER, CODER_DRAFT],
            DraftMode("off"),
        ),
    ],
)
def test_flags_come_to_what_is_loaded_and_what_drafts(
    request_: LaunchOptions, references: list[str], mode: DraftMode
) -> None:
    assert launch._references(request_, load_registry()) == references
    assert draft_modes(request_)[0] == mode


@pytest.mark.parametrize(
    ("modes", "rows"),
    [
        (("off",), 1),
        (("lookup",), 16),
        (("model:5",), 6),
        (("auto",), 32),
        (("off", "lookup:40"), 41),
    ],
)
def test_passes_are_as_wide_as_the_widest_mode_needs(
    target: Path, modes: tuple[str, ...], rows: int
) -> None:
    draft_model = target.with_name("draft.gguf")
    draft_model.write_bytes(model_file())
    request = LaunchOptions(
        target=str(target), draft_model=str(draft_model), draft=modes[0], further=modes[1:]
    )
    assert make_plan(request).options.max_rows == rows


@pytest.mark.parametrize(
    "request_", [LaunchOptions(draft="model"), LaunchOptions(target="t", draft="model")]
)
def test_drafting_by_a_model_needs_one(request_: LaunchOptions) -> None:
    with pytest.raises(UsageError, match="has no draft model: name one with --draft-model"):
        launch._references(request_, load_registry())


DEAR, CHEAP = PassCosts((1, 32), (1.0, 1.1)), PassCosts((1, 32), (0.1, 0.2))
PLAIN = PassCosts((1, 32), (1.0, 1.1))


@pytest.mark.parametrize(
    ("costs", "draft", "used"),
    [
        (DEAR, "auto", False),
        (CHEAP, "auto", True),
        (None, "auto", True),
        (DEAR, "model", True),
    ],
)
def test_a_draft_model_that_could_never_pay_is_not_loaded(
    target: Path,
    monkeypatch: pytest.MonkeyPatch,
    costs: PassCosts | None,
    draft: str,
    used: bool,
) -> None:
    draft_model = target.with_name("draft.gguf")
    draft_model.write_bytes(model_file())
    known = {target: StoredCosts(PLAIN), draft_model: costs and StoredCosts(costs)}
    monkeypatch.setattr(launch, "stored_costs", lambda file, *_: known[file])
    ready = make_plan(LaunchOptions(target=str(target), draft_model=str(draft_model), draft=draft))
    assert (ready.draft_model is not None) is used
    assert (ready.shared_vocab > 0) is used
    # What is left out is known by its price.
    left_out = None if used or costs is None else PairCosts(PLAIN, costs)
    assert ready.left_out == left_out


@pytest.mark.parametrize(("rows", "wins"), [(1, False), (2, False), (3, True)])
def test_whether_a_draft_model_pays_is_judged_by_drafts_that_passes_hold(
    rows: int, wins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a pass of `rows` one row is no draft's; these costs are earned back from two drafted tokens on."""
    costs = PairCosts(PassCosts((1, 2, 3), (1.0, 1.3, 1.6)), PassCosts((1,), (0.5,)))
    assert draft_model_could_win(costs, 2)
    assert not draft_model_could_win(costs, 1)
    options = LoadOptions(max_rows=rows)
    plan = LoadPlan(Path("t"), Path("d"), {}, (DraftMode("auto"),), 9, options)
    known = {Path("t"): StoredCosts(costs.target), Path("d"): StoredCosts(PassCosts((1,), (0.5,)))}
    monkeypatch.setattr(launch, "stored_costs", lambda file, *_: known[file])
    assert launch._never_pays(plan, 1) == (None if wins else costs)
    loading = _Loading(plan, CancelFlag(), _silent, _silent, None, None, [])
    assert loading._is_idle(costs, 1) is not wins


def _silent(_name: str, _share: float) -> None:
    pass


@pytest.mark.parametrize(
    ("seconds", "doubts", "used"), [(0.85, 0, False), (0.85, 1, True), (1.0, 1, False)]
)
def test_a_draft_model_that_may_pay_is_loaded_until_that_is_sure(
    target: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, doubts: int, used: bool
) -> None:
    """At 0.85 of a plain step, drafting is at most 1.07 times as fast."""
    draft_model = target.with_name("draft.gguf")
    draft_model.write_bytes(model_file())
    costs = PassCosts((1, 32), (seconds, 2 * seconds))
    known = {target: StoredCosts(PLAIN), draft_model: StoredCosts(costs, doubts)}
    monkeypatch.setattr(launch, "stored_costs", lambda file, *_: known[file])
    ready = make_plan(LaunchOptions(target=str(target), draft_model=str(draft_model)))
    assert (ready.draft_model is not None) is used


def test_exact_loads_with_kernels_that_round_alike(target: Path) -> None:
    ready = make_plan(LaunchOptions(target=str(target), exact=True))
    assert ready.exact
    assert ready.options == replace(LoadOptions(max_rows=32).exact())
    with pytest.raises(UsageError, match="--exact needs a bf16 cache, but --kv-type is q8_0"):
        LaunchOptions(exact=True, load=LoadOptions(kv_type="q8_0"))


def test_a_pair_and_a_target_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="pair a and target b cannot be combined"):
        LaunchOptions("a", target="b")


@pytest.mark.parametrize("draft_length", [-1, 0, 64, 999])
def test_a_draft_length_out_of_range_is_refused(draft_length: int) -> None:
    with pytest.raises(
        UsageError, match=f"draft_length is {draft_length}: it must be from 1 to 63"
    ):
        LaunchOptions(draft_length=draft_length)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "target.gguf"
    path.write_bytes(model_file())
    return path


def test_a_pair_of_files_is_checked_without_being_loaded(target: Path) -> None:
    draft_model = target.with_name("draft.gguf")
    draft_model.write_bytes(model_file())
    ready = make_plan(LaunchOptions(target=str(target), draft_model=str(draft_model)))
    assert (ready.target, ready.draft_model, ready.shared_vocab) == (target, draft_model, 6)


@pytest.mark.parametrize("draft", ["off", "lookup"])
def test_a_draft_model_that_will_not_draft_is_not_looked_at(target: Path, draft: str) -> None:
    ready = make_plan(LaunchOptions(target=str(target), draft_model="nowhere.gguf", draft=draft))
    assert (ready.target, ready.draft_model, ready.shared_vocab) == (target, None, 0)


def test_a_draft_model_with_other_ids_that_somebody_named_drafts_across_vocabularies(
    target: Path,
) -> None:
    draft_model = target.with_name("draft.gguf")
    draft_model.write_bytes(model_file(tokens=[*TOKENS[:-1], "ba"]))
    ready = make_plan(LaunchOptions(target=str(target), draft_model=str(draft_model)))
    assert (ready.draft_model, ready.shared_vocab) == (draft_model, 0)
    (note,) = ready.notes
    assert f"{draft_model} has another vocabulary: 66.7 % of its tokens are the target's" in note


def test_a_draft_model_of_a_pair_with_other_ids_is_refused(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft_model = target.with_name("draft.gguf")
    draft_model.write_bytes(model_file(tokens=[*TOKENS[:-1], "ba"]))
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(target.parent))
    pair = f'[pairs.mine]\ntarget = "{target}"\ndraft_model = "{draft_model}"\n'
    target.with_name("models.toml").write_text(pair)
    with pytest.raises(PairMismatch, match="name this one with --draft-model"):
        make_plan(LaunchOptions("mine", draft="model"))


def test_a_draft_model_with_nothing_in_common_is_refused_by_the_names_that_were_given(
    target: Path,
) -> None:
    draft_model = target.with_name("draft.gguf")
    draft_model.write_bytes(model_file(tokens=[*TOKENS[:3], "x", "y", "z"]))
    with pytest.raises(PairMismatch) as caught:
        make_plan(LaunchOptions(target=str(target), draft_model=str(draft_model)))
    assert str(target) in str(caught.value)
    assert str(draft_model) in str(caught.value)


def test_a_damaged_draft_model_is_found_before_anything_is_loaded(target: Path) -> None:
    draft_model = target.with_name("draft.gguf")
    draft_model.write_bytes(model_file()[:-1])
    with pytest.raises(ModelFileError, match=r"draft\.gguf"):
        make_plan(LaunchOptions(target=str(target), draft_model=str(draft_model)))


def test_a_missing_draft_model_is_found_before_anything_is_loaded(target: Path) -> None:
    with pytest.raises(ModelUnavailable, match=r"there is no file .*nowhere\.gguf"):
        make_plan(
            LaunchOptions(target=str(target), draft_model=str(target.with_name("nowhere.gguf")))
        )


def fit_plan(**changes: object) -> FitPlan:
    ram = PlaceUse(Place("RAM", 1, 0), Usage(), Usage())
    plan = FitPlan(4096, "f16", 0, 0, (ram,), ("something was given up",))
    return replace(plan, **changes)  # type: ignore[arg-type]


@pytest.fixture
def fitted(target: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., LoadPlan]:
    """Prepares a pair under a plan of one's own."""
    draft_model = target.with_name("draft.gguf")
    draft_model.write_bytes(model_file())

    def run(plan: FitPlan | None, **more: object) -> LoadPlan:
        monkeypatch.setattr(launch, "plan_fit", lambda *_, **__: plan)
        request = LaunchOptions(target=str(target), draft_model=str(draft_model), draft="model")
        return make_plan(replace(request, **more))  # type: ignore[arg-type]

    return run


def test_a_draft_model_that_does_not_fit_gives_way_to_lookup(
    fitted: Callable[..., LoadPlan],
) -> None:
    ready = fitted(fit_plan(draft_layers=None))
    assert (ready.draft_model, ready.shared_vocab) == (None, 0)
    assert ready.modes == (DraftMode("lookup", 15),)
    assert ready.options.max_rows == 16
    assert ready.notes == ("something was given up",)


def test_a_context_that_had_to_shrink_is_what_is_loaded(fitted: Callable[..., LoadPlan]) -> None:
    assert fitted(fit_plan(n_ctx=1024, shrunk=True)).options.n_ctx == 1024
    # A context that is only what the model was trained for is left to the loader, which says so.
    assert fitted(fit_plan(n_ctx=1024), load=LoadOptions(9000)).options.n_ctx == 9000


def test_layers_go_where_they_fit(fitted: Callable[..., LoadPlan]) -> None:
    gpu = PlaceUse(Place("GPU", 1, 0), Usage(), Usage())
    plan = fit_plan(target_layers=5, draft_layers=0)
    with_gpu = replace(plan, uses=(*plan.uses, gpu))
    ready = fitted(with_gpu)
    assert ready.draft_options is not None
    assert (ready.options.gpu_layers, ready.draft_options.gpu_layers) == (5, 0)
    asked = fitted(with_gpu, load=LoadOptions(gpu_layers=3))
    assert asked.draft_options is not None
    assert (asked.options.gpu_layers, asked.draft_options.gpu_layers) == (3, 3)


def test_a_draft_model_with_devices_of_its_own_is_not_held_back_by_the_targets_layers(
    fitted: Callable[..., LoadPlan],
) -> None:
    on_cpu = LoadOptions(gpu_layers=0)
    ready = fitted(None, load=on_cpu, draft_devices=("CPU",))
    assert ready.draft_options is not None
    assert (ready.draft_options.gpu_layers, ready.draft_options.devices) == (None, ("CPU",))
    ready = fitted(None, load=on_cpu)
    assert ready.draft_options == ready.options
    ready = fitted(None, load=on_cpu, draft_devices=("CPU",), draft_gpu_layers=4)
    assert ready.draft_options is not None
    assert ready.draft_options.gpu_layers == 4


def test_without_a_plan_or_unasked_everything_is_loaded_as_wished(
    fitted: Callable[..., LoadPlan],
) -> None:
    for ready in (fitted(None), fitted(fit_plan(draft_layers=None), fit=False)):
        assert ready.draft_model is not None
        assert ready.options == LoadOptions(max_rows=4)
        assert ready.notes == ()


def test_a_target_that_does_not_fit_is_refused_before_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = sparse_model(tmp_path / "huge.gguf", LLAMA_8B)
    little = Machine(Place("RAM", 1 << 30, 0))
    monkeypatch.setattr(fitting, "free_memory", lambda *_: little)
    with pytest.raises(ModelLoadError, match=r"huge\.gguf does not fit"):
        make_plan(LaunchOptions(target=str(path)))
    assert make_plan(LaunchOptions(target=str(path), fit=False)).notes == ()


def test_nothing_is_fetched_where_all_is_here(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(models: list[object], **_: object) -> list[Path]:
        raise AssertionError(models)

    monkeypatch.setattr("localspec.models.pull.fetch", fetch)
    draft_model = target.with_name("draft.gguf")
    draft_model.write_bytes(model_file())
    plan = make_plan(LaunchOptions(target=str(target), draft_model=str(draft_model)))
    assert list(plan.names) == [target, draft_model]


def test_a_prompt_is_cut_for_those_who_read_but_not_into_what_is_not_worth_a_pass() -> None:
    def taking(seconds: float) -> PairCosts:
        return PairCosts(PassCosts((1, 32), (0.01, seconds)))

    assert shared_chunk(taking(0.4), None) is None
    assert shared_chunk(None, 0.4) == 64
    assert shared_chunk(taking(0.4), 0.4) == 64, "32 would be as long as they may wait"
    assert shared_chunk(taking(0.1), 0.4) == 128
    assert shared_chunk(taking(0.08), 0.4) == 160
