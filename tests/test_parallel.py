"""Loading for several sequences on real weights: how many at once, and what is given up for it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localspec.calibration.calibrated import Calibration
from localspec.decoding.costs import PairCosts, PassCosts
from localspec.decoding.drafters.lookup import LookupDrafter
from localspec.decoding.drafters.model import ModelDrafter
from localspec.decoding.model import Role
from localspec.decoding.policy import AdaptivePolicy, FixedPolicy
from localspec.engine.protocol import Loading, Measuring
from localspec.errors import ModelLoadError
from localspec.launch import load as loading
from localspec.launch import plan as planning
from localspec.launch.fit import sequences_that_fit
from localspec.launch.load import load
from localspec.launch.plan import make_plan
from localspec.models.gguf import read_header
from localspec.options import LaunchOptions, LoadOptions

pytestmark = pytest.mark.weights

OPTIONS = LoadOptions(n_ctx=512, threads=1)


def launch(path: Path, draft: str = "off", draft_model: str | None = None) -> LaunchOptions:
    return LaunchOptions(target=str(path), draft=draft, draft_model=draft_model, load=OPTIONS)


def test_no_more_than_the_memory_holds(smollm2_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "sequences_that_fit", lambda *_: 2)
    plan = make_plan(launch(smollm2_path), parallel=3)
    with pytest.raises(ModelLoadError, match="3 sequences of 512 tokens do not fit"):
        load(plan, parallel=3)
    assistant = load(plan, parallel=None).assistant
    assert assistant.count <= 2
    assistant.close()
    unfitted = load(replace(plan, fit=False), parallel=3).assistant
    assert unfitted.count == 3
    unfitted.close()


def calibrated_as(
    monkeypatch: pytest.MonkeyPatch, target: PassCosts, draft_model: PassCosts | None = None
) -> None:
    found = Calibration(PairCosts(target, draft_model))
    monkeypatch.setattr(loading, "calibrated", lambda *_: found)
    monkeypatch.setattr(planning, "stored_costs", lambda *_: None)  # those of this machine


def test_auto_is_what_costs_suggest_and_measuring_again_has_a_reason(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibrated_as(monkeypatch, PassCosts((1, 2, 5, 64), (1.0, 1.1, 1.2, 60.0)))
    assistant = load(make_plan(launch(smollm2_path), parallel=None), parallel=None).assistant
    assert assistant.count == 5
    assert assistant.notes[-1] == "5 answers at a time"
    assistant.close()

    def again(*arguments: Any) -> Calibration:
        arguments[-1](Role.TARGET, 0.5, True)
        return Calibration(PairCosts(PassCosts((1, 64), (1.0, 60.0))))

    monkeypatch.setattr(loading, "calibrated", again)
    reports: list[Loading | Measuring] = []
    plan = make_plan(launch(smollm2_path, "auto"))
    load(plan, report=reports.append).assistant.close()
    measured = [each.model for each in reports if isinstance(each, Measuring)]
    assert measured == [f"{smollm2_path} (again: busy last time)"]


def test_each_sequence_drafts_for_itself(smollm2_path: Path) -> None:
    for draft, kind in (("model", ModelDrafter), ("lookup", LookupDrafter)):
        small = str(smollm2_path) if draft == "model" else None
        plan = make_plan(launch(smollm2_path, draft, small), parallel=2)
        assistant = load(plan, parallel=2).assistant
        models = assistant.models
        views = () if models.draft_models is None else models.draft_models.views
        assert (len(models.targets.views), len(views)) == (2, 2 if small else 0)
        policies = assistant.policies
        drafters = [each.drafter for each in policies if isinstance(each, FixedPolicy)]
        assert [type(each) for each in drafters] == [kind, kind]
        assert drafters[0] is not drafters[1]
        assistant.close()
    header = read_header(smollm2_path)
    small_, large = (sequences_that_fit(header, LoadOptions(n_ctx=n)) or 0 for n in (256, 4096))
    assert small_ > 10 * large > 0, "fewer fit, the larger they are"


WIDTHS = (1, 2, 4, 8, 16, 32, 64)


@pytest.mark.parametrize("pays", [True, False])
def test_auto_keeps_a_draft_model_that_pays_beside_the_others(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch, pays: bool
) -> None:
    """Where each further row costs a whole pass, nothing is gained by drafting beside another."""
    beside = [1.0] * 7 if pays else [1.0, 1.0, 4.0, 8.0, 16.0, 32.0, 64.0]
    calibrated_as(monkeypatch, PassCosts(WIDTHS, tuple(beside)), PassCosts(WIDTHS, (0.05,) * 7))
    plan = make_plan(launch(smollm2_path, "auto", str(smollm2_path)), parallel=2)
    assistant = load(plan, parallel=2).assistant
    assert (assistant.models.draft_models is not None) is pays
    for policy in assistant.policies:
        assert isinstance(policy, AdaptivePolicy)
        assert [each.name for each in policy.drafters] == (
            ["lookup", "model", "forced"] if pays else ["lookup", "forced"]
        )
    assistant.close()
