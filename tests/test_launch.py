"""What a launch comes to, before any weights are read."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from localspec.calibration.calibrated import Measurements, StoredCosts
from localspec.decoding.cancel import CancelFlag
from localspec.decoding.costs import PairCosts, PassCosts, draft_model_could_win
from localspec.decoding.draft_mode import DraftMode, draft_modes
from localspec.errors import (
    ModelFileError,
    ModelLoadError,
    ModelUnavailable,
    PairMismatch,
)
from localspec.launch.load import _Loading
from localspec.llama.safe_widths import SafeWidths
from localspec.models.registry import load_registry
from localspec.options import QUANTISED_KV_TYPES, LaunchOptions, LoadOptions
from localspec.plan import decide as launch
from localspec.plan import facts, payoff
from localspec.plan.fit import FitPlan, FreeMemory, PairLoad, Place, PlaceUse
from localspec.plan.load_plan import LoadPlan
from localspec.plan.make import make_plan
from localspec.plan.settle import price, shared_chunk
from localspec.resources import Usage
from tests.models.gguf_builder import TOKENS, model_file
from tests.models.shapes import LLAMA_1B, LLAMA_8B, sparse_model
from tests.models.test_mmproj import mmproj_file
from tests.support.checks import refuses

SMALL, CODER = "smollm2-135m", "qwen2.5-coder-1.5b"
CODER_DRAFT = "qwen2.5-coder-0.5b"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "target.gguf"
    path.write_bytes(model_file())
    return path


@pytest.fixture
def draft_model(target: Path) -> Path:
    path = target.with_name("draft.gguf")
    path.write_bytes(model_file())
    return path


def pair(target: Path, draft_model: Path, **more: Any) -> LaunchOptions:
    return LaunchOptions(target=str(target), draft_model=str(draft_model), **more)


def test_flags_come_to_what_is_loaded_and_what_drafts() -> None:
    for request_, references, mode in [
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
        (LaunchOptions(target="t", draft_model="d", draft="lookup"), ["t"], DraftMode("lookup", 15)),
        (LaunchOptions(CODER, draft="off", further=("model",)), [CODER, CODER_DRAFT], DraftMode("off")),
    ]:  # fmt: skip
        modes = draft_modes(request_)
        assert launch.wanted(launch.Wish(request_), load_registry()) == references
        assert modes[0] == mode


@pytest.mark.parametrize(
    ("usual_s", "words"),
    [
        (0.0100, "; a plain token takes 10.5 ms; what a token takes without --exact differs too little to be known"),
        (0.0080, "; a plain token takes 10.5 ms, and 8.0 ms without --exact"),
        (None, "; a plain token takes 10.5 ms, and less without --exact: how much is known after a run without it"),
    ],
)  # fmt: skip
def test_the_price_of_exact_passes_is_told_where_it_is_beyond_noise(
    usual_s: float | None, words: str
) -> None:
    exact = SafeWidths((1, 2, 3, 4), {})
    told = "exact: drafts of up to 3 tokens"
    assert price(3, exact, 0.0105, usual_s, drafts=True) == told + words
    assert price(3, exact, None, usual_s, drafts=True) == told


def test_passes_are_as_wide_as_the_widest_mode_needs(target: Path, draft_model: Path) -> None:
    wide = {("off",): 1, ("lookup",): 16, ("model:5",): 6, ("auto",): 32, ("off", "lookup:40"): 41}
    for modes, rows in wide.items():
        request = pair(target, draft_model, draft=modes[0], further=modes[1:])
        assert make_plan(request).options.max_rows == rows
    ready = make_plan(LaunchOptions(target=str(target), exact=True))
    assert ready.exact
    assert ready.options == LoadOptions(max_rows=32).exact(), "kernels that round alike"


PLAIN = PassCosts((1, 32), (1.0, 1.1))


def costing(seconds: float) -> PassCosts:
    return PassCosts((1, 32), (seconds, 2 * seconds))


def test_a_draft_model_that_could_never_pay_is_not_loaded(
    target: Path, draft_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for stored, draft, used in [
        (StoredCosts(costing(1.0)), "auto", False),
        (StoredCosts(costing(1.0)), "model", True),
        (StoredCosts(costing(0.1)), "auto", True),
        (None, "auto", True),
        # At 0.85 of a plain step, drafting is at most 1.07 times as fast: it is loaded until that is sure.
        (StoredCosts(costing(0.85)), "auto", False),
        (StoredCosts(costing(0.85), 1), "auto", True),
        (StoredCosts(costing(1.0), 1), "auto", False),
    ]:
        known = {target: StoredCosts(PLAIN), draft_model: stored}
        monkeypatch.setattr(
            "localspec.calibration.calibrated.stored_costs",
            lambda file, *_, known=known: known[file],
        )
        ready = make_plan(pair(target, draft_model, draft=draft))
        assert (ready.draft_model is not None) is (ready.shared_vocab > 0) is used
        if used or stored is None:
            assert ready.left_out is None
        else:  # what is left out is known by its price
            assert ready.left_out is not None
            assert ready.left_out.draft_model == stored.costs


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
    monkeypatch.setattr(
        "localspec.calibration.calibrated.stored_costs", lambda file, *_: known[file]
    )
    assert payoff.never_pays(plan, Measurements()) == (None if wins else costs)
    assert payoff.is_idle(plan, costs, 1) is not wins


def test_options_that_contradict_each_other_are_refused() -> None:
    f32 = LoadOptions(kv_type="f32")
    refuses("takes a bf16 or a quantised cache.* is f32", LaunchOptions, exact=True, load=f32)
    for kind, exact in (
        ("f16", "bf16"),
        ("bf16", "bf16"),
        *((kind, kind) for kind in QUANTISED_KV_TYPES),
    ):
        launch_ = LaunchOptions(exact=True, load=LoadOptions(kv_type=kind))
        assert launch_.target_load.kv_type == exact
    refuses("pair a and target b cannot be combined", LaunchOptions, "a", "b")
    for length in (0, 64):
        refuses(f"is {length}: it must be from 1 to 63", LaunchOptions, draft_length=length)
    for request_ in [LaunchOptions(draft="model"), LaunchOptions(target="t", draft="model")]:
        refuses("has no draft model: name one with --draft-model", make_plan, request_)


def test_a_pair_of_files_is_checked_without_being_loaded_and_nothing_is_fetched(
    target: Path, draft_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localspec.models.pull.fetch", None)
    ready = make_plan(pair(target, draft_model))
    assert (ready.target, ready.draft_model, ready.shared_vocab) == (target, draft_model, 6)
    assert list(ready.names) == [target, draft_model]
    for draft in ("off", "lookup"):  # a draft model that will not draft is not looked at
        ready = make_plan(LaunchOptions(target=str(target), draft_model="nowhere", draft=draft))
        assert (ready.target, ready.draft_model, ready.shared_vocab) == (target, None, 0)


def test_a_named_draft_model_with_other_ids_drafts_across_vocabularies(
    target: Path, draft_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PairLoad, "fit", lambda *_: fit_plan())
    draft_model.write_bytes(model_file(tokens=[*TOKENS[:-1], "ba"]))
    ready = make_plan(pair(target, draft_model))
    assert (ready.draft_model, ready.shared_vocab) == (draft_model, 0)
    note, given_up = ready.notes
    assert given_up == "something was given up"
    assert f"{draft_model} has another vocabulary: 66.7 % of its tokens are the target's" in note


def test_a_draft_model_of_a_pair_with_other_ids_is_refused(
    target: Path, draft_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft_model.write_bytes(model_file(tokens=[*TOKENS[:-1], "ba"]))
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(target.parent))
    entry = f'[pairs.mine]\ntarget = "{target}"\ndraft_model = "{draft_model}"\n'
    target.with_name("models.toml").write_text(entry)
    with pytest.raises(PairMismatch, match="name this one with --draft-model"):
        make_plan(LaunchOptions("mine", draft="model"))


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (model_file(tokens=[*TOKENS[:3], "x", "y", "z"]), PairMismatch),
        (model_file()[:-1], ModelFileError),
        (None, ModelUnavailable),
    ],
)
def test_a_draft_model_that_cannot_be_used_is_refused_by_name_before_anything_is_loaded(
    target: Path, draft_model: Path, content: bytes | None, error: type[Exception]
) -> None:
    draft_model.unlink() if content is None else draft_model.write_bytes(content)
    with pytest.raises(error, match=r"draft\.gguf") as caught:
        make_plan(pair(target, draft_model))
    assert error is not PairMismatch or str(target) in str(caught.value)


def fit_plan(**changes: Any) -> FitPlan:
    ram = PlaceUse(Place("RAM", 1, 0), Usage(), Usage())
    plan = FitPlan(4096, "f16", 0, 0, (ram,), ("something was given up",))
    return replace(plan, **changes)


@pytest.fixture
def fitted(
    target: Path, draft_model: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., LoadPlan]:
    """Prepares a pair under a plan of one's own."""

    def run(plan: FitPlan | None, **more: Any) -> LoadPlan:
        monkeypatch.setattr(PairLoad, "fit", lambda *_: plan)
        return make_plan(pair(target, draft_model, draft="model", **more))

    return run


def test_what_does_not_fit_is_left_out_or_shrunk(fitted: Callable[..., LoadPlan]) -> None:
    ready = fitted(fit_plan(draft_layers=None))
    assert (ready.draft_model, ready.shared_vocab) == (None, 0)
    assert ready.modes == (DraftMode("lookup", 15),)
    assert ready.options.max_rows == 16
    assert ready.notes == ("something was given up",)
    assert fitted(fit_plan(n_ctx=1024, shrunk=True)).options.n_ctx == 1024
    # A context that is only what the model was trained for is left to the loader, which says so.
    assert fitted(fit_plan(n_ctx=1024), load=LoadOptions(9000)).options.n_ctx == 9000
    for ready in (fitted(None), fitted(fit_plan(draft_layers=None), fit=False)):
        assert ready.draft_model is not None
        assert ready.options == LoadOptions(max_rows=4)
        assert ready.notes == ()


def test_layers_go_where_they_fit_or_where_the_user_sends_them(
    fitted: Callable[..., LoadPlan],
) -> None:
    def layers(plan: FitPlan | None, **more: Any) -> tuple[int | None, int | None, Any]:
        ready = fitted(plan, **more)
        assert ready.draft_options is not None
        own = ready.draft_options
        return ready.options.gpu_layers, own.gpu_layers, own.devices

    gpu = PlaceUse(Place("GPU", 1, 0), Usage(), Usage())
    plan = fit_plan(target_layers=5, draft_layers=0)
    with_gpu = replace(plan, uses=(*plan.uses, gpu))
    assert layers(with_gpu) == (5, 0, ())
    assert layers(with_gpu, load=LoadOptions(gpu_layers=3)) == (3, 3, ())
    # A draft model with devices of its own is not held back by the target's layers.
    on_cpu = LoadOptions(gpu_layers=0)
    assert layers(None, load=on_cpu) == (0, 0, ())
    assert layers(None, load=on_cpu, draft_devices=("CPU",)) == (0, None, ("CPU",))
    more = {"draft_devices": ("CPU",), "draft_gpu_layers": 4}
    assert layers(None, load=on_cpu, **more) == (0, 4, ("CPU",))


def test_a_target_that_does_not_fit_is_refused_before_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = sparse_model(tmp_path / "huge.gguf", LLAMA_8B)
    monkeypatch.setattr(facts, "free_memory", lambda: FreeMemory(1 << 30))
    with pytest.raises(ModelLoadError, match=r"huge\.gguf does not fit"):
        make_plan(LaunchOptions(target=str(path)))
    assert make_plan(LaunchOptions(target=str(path), fit=False)).notes == ()


_HUGE = {"vision.image_size": 1000, "vision.patch_size": 1, "vision.embedding_length": 60_000}


def test_encoders_are_those_of_the_file_that_is_named_or_lies_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "free_memory", lambda: FreeMemory(8 << 30))
    (tmp_path / "folder").mkdir()
    target = sparse_model(tmp_path / "folder" / "toy.gguf", LLAMA_1B)
    beside, named = target.with_name("mmproj-f16.gguf"), tmp_path / "named.gguf"
    seeing, hearing = (mmproj_file(kind, width=2048) for kind in ("image", "audio"))

    def planned(mmproj: str | None = None, **more: Any) -> LoadPlan:
        return make_plan(LaunchOptions(target=str(target), mmproj=mmproj, **more))

    assert planned().encoder.path is None
    named.write_bytes(seeing)
    ready = planned(str(named))
    assert (ready.encoder.path, ready.encoder.named) == (named, True)
    beside.write_bytes(hearing)
    ready = planned()
    assert (ready.encoder.path, ready.encoder.named, ready.notes) == (beside, False, ())
    assert ready.encoder.takes == {}
    assert planned(str(named)).encoder.path == named
    off = planned("off").encoder
    assert (off.path, off.takes) == (None, {"audio": f"{target} without --mmproj off"})
    # What nobody named costs no text: it is left out with a note.
    for data, why in [
        (mmproj_file("image", width=16), "is for a model of width 16, and"),
        (mmproj_file("image", width=2048, **_HUGE), "not hold its encoders"),
        (seeing[:40], "is cut off"),
        (model_file(), "its architecture is toy"),
    ]:
        beside.write_bytes(data)
        ready = planned()
        assert ready.encoder.path is None
        assert re.search(f"the target reads text only: .*{why}", ready.notes[0])
        named.write_bytes(data)
        refused = why.replace("not hold its encoders", r"does not fit.* --mmproj off")
        with pytest.raises((ModelFileError, PairMismatch, ModelLoadError), match=refused):
            planned(str(named))


def test_a_prompt_is_cut_for_readers_but_not_into_what_is_not_worth_a_pass() -> None:
    for seconds, hold_up_s, tokens in [
        (0.4, None, None),
        (None, 0.4, 64),
        (0.4, 0.4, 64),  # 32 would be as long as they may wait
        (0.1, 0.4, 128),
        (0.08, 0.4, 160),
    ]:
        costs = None if seconds is None else PairCosts(PassCosts((1, 32), (0.01, seconds)))
        assert shared_chunk(costs, hold_up_s) == tokens
    for asked, given in [(None, True), (True, True), (False, False)]:
        options = LoadOptions(gpu_layers=0, flash_attention=asked)
        assert launch.for_many(options, on_gpu=False).flash_attention is given


def test_the_context_is_what_was_asked_for_up_to_what_the_model_was_trained_for() -> None:
    notes: list[str] = []
    plan = LoadPlan(Path("a"), None, {}, (DraftMode("off"),), 0, LoadOptions())
    loading = _Loading(plan, CancelFlag(), lambda _: None, None, False, notes)
    model: Any = SimpleNamespace(n_ctx_train=512)
    assert loading._trained_for(model, LoadOptions(n_ctx=512)).n_ctx == 512
    assert notes == []
    assert loading._trained_for(model, LoadOptions(n_ctx=513)).n_ctx == 512
    assert "512 tokens, not 513" in notes[0]
