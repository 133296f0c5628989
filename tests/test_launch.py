"""What a launch comes to, before any weights are read."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from localspec.calibration.calibrated import Measurements, StoredCosts
from localspec.decoding.cancel import CancelFlag
from localspec.decoding.costs import PairCosts, PassCosts, draft_model_could_win
from localspec.decoding.draft_mode import DraftMode
from localspec.errors import PairMismatch
from localspec.launch import load
from localspec.launch.load import _Loading
from localspec.llama.safe_widths import SafeWidths
from localspec.options import QUANTISED_KV_TYPES, LaunchOptions, LoadOptions
from localspec.plan import decide as launch
from localspec.plan import payoff
from localspec.plan.load_plan import LoadPlan
from localspec.plan.make import make_plan
from localspec.plan.settle import price, shared_chunk
from tests.models.gguf_builder import TOKENS, model_file
from tests.support.checks import refuses


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


def test_the_price_of_exact_passes_is_not_told_of_what_was_measured_beside_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = LoadOptions(max_rows=4, repack=False)
    plan = LoadPlan(Path("t"), None, {}, (DraftMode("auto"),), 9, options)
    asked: Any = SimpleNamespace(plan=plan)
    told = partial(_Loading._price, asked, 3, SafeWidths((1, 2, 3, 4), {}))
    for exact_doubts, usual_doubts, words in (
        (0, 0, "a plain token takes 10.0 ms, and 37.0 ms without --exact"),
        (0, 2, "a plain token takes 10.0 ms, and less without --exact"),
        (2, 0, "exact: drafts of up to 3 tokens"),
    ):
        exact = StoredCosts(PassCosts((1,), (0.010,)), exact_doubts)
        usual = StoredCosts(PassCosts((1,), (0.037,)), usual_doubts)
        monkeypatch.setattr(
            load, "stored_costs", lambda _, way, *__, two=(usual, exact): two[not way.repack]
        )
        assert words in told()
        assert ("takes" in told()) is (exact_doubts == 0)


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


def test_a_draft_model_of_a_pair_with_other_ids_is_refused(
    target: Path, draft_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft_model.write_bytes(model_file(tokens=[*TOKENS[:-1], "ba"]))
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(target.parent))
    entry = f'[pairs.mine]\ntarget = "{target}"\ndraft_model = "{draft_model}"\n'
    target.with_name("models.toml").write_text(entry)
    with pytest.raises(PairMismatch, match="name this one with --draft-model"):
        make_plan(LaunchOptions("mine", draft="model"))


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
