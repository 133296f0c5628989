"""Loading for several sequences: how many at once, and what is given up for it."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localspec.calibration.calibrated import Calibration
from localspec.decoding.costs import PairCosts, PassCosts
from localspec.decoding.model import Role
from localspec.decoding.policy import AdaptivePolicy
from localspec.engine.protocol import Loading, Measuring
from localspec.errors import ModelLoadError
from localspec.launch import load as loading
from localspec.launch.load import load
from localspec.options import LaunchOptions, LoadOptions
from localspec.plan.fit import PairLoad
from localspec.plan.make import make_plan
from tests.llama import tiny_models
from tests.support.speaking import opened

OPTIONS = LoadOptions(n_ctx=512, threads=1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.write_llama(tmp_path_factory.mktemp("models") / "tiny.gguf")


def launch(path: Path, draft: str = "off", draft_model: str | None = None) -> LaunchOptions:
    return LaunchOptions(target=str(path), draft=draft, draft_model=draft_model, load=OPTIONS)


def test_no_more_than_the_memory_holds(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calibrated_as(monkeypatch, PassCosts((1, 2, 5, 64), (1.0, 1.1, 1.2, 60.0)))
    monkeypatch.setattr(PairLoad, "sequences", lambda *_: 2)
    plan = make_plan(launch(model), parallel=3)
    with pytest.raises(ModelLoadError, match="3 sequences of 512 tokens do not fit"):
        load(plan)
    for parallel, fit, count in ((None, True, 2), (3, False, 3)):
        with closing(load(replace(plan, fit=fit, parallel=parallel)).assistant) as assistant:
            assert assistant.count <= count
            assert fit or assistant.count == count
    for holds in (2, 0):  # by now: the plan of one was made before
        monkeypatch.setattr(PairLoad, "sequences", lambda *_, holds=holds: holds)
        with closing(load(plan, at_most=True).assistant) as assistant:
            assert assistant.count == max(holds, 1), "nobody asked for three"
            assert "3 answers at a time do not fit into the free memory" in assistant.notes
            assert assistant.notes[-1] == ("2 answers at a time" if holds else "one answer at a time")  # fmt: skip


def calibrated_as(
    monkeypatch: pytest.MonkeyPatch, target: PassCosts, draft_model: PassCosts | None = None
) -> None:
    found = Calibration(PairCosts(target, draft_model))
    monkeypatch.setattr(loading, "calibrated", lambda *_: found)
    monkeypatch.setattr(
        "localspec.calibration.calibrated.stored_costs", lambda *_: None
    )  # those of this machine


@pytest.mark.parametrize(
    ("seconds", "why"), [(1.1, "do not fit into the free memory"), (2.0, "would gain nothing")]
)
def test_one_at_a_time_has_its_reason(
    model: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, why: str
) -> None:
    calibrated_as(monkeypatch, PassCosts((1, 2), (1.0, seconds)))
    monkeypatch.setattr(PairLoad, "sequences", lambda *_: 1)
    with closing(load(make_plan(launch(model), parallel=None)).assistant) as assistant:
        assert assistant.notes[-1] == f"one answer at a time: more {why}"


def test_auto_is_what_costs_suggest_and_measuring_again_has_a_reason(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibrated_as(monkeypatch, PassCosts((1, 2, 5, 64), (1.0, 1.1, 1.2, 60.0)))
    assistant = load(make_plan(launch(model), parallel=None)).assistant
    assert assistant.count == 5
    assert assistant.notes[-1] == "5 answers at a time"
    assistant.close()

    def again(*arguments: Any) -> Calibration:
        arguments[-1](Role.TARGET, 0.5, True)
        return Calibration(PairCosts(PassCosts((1, 64), (1.0, 60.0))))

    monkeypatch.setattr(loading, "calibrated", again)
    reports: list[Loading | Measuring] = []
    plan = make_plan(launch(model, "auto"))
    load(plan, report=reports.append).assistant.close()
    measured = [each.model for each in reports if isinstance(each, Measuring)]
    assert measured == [f"{model} again: the machine was busy last time"]


@pytest.mark.parametrize("pays", [True, False])
def test_auto_keeps_a_draft_model_that_pays_beside_the_others(
    model: Path, monkeypatch: pytest.MonkeyPatch, pays: bool
) -> None:
    """Where each further row costs a whole pass, nothing is gained by drafting beside another."""
    widths = (1, 2, 4, 8, 16, 32, 64)
    beside = (1.0,) * 7 if pays else (1.0, 1.0, 4.0, 8.0, 16.0, 32.0, 64.0)
    calibrated_as(monkeypatch, PassCosts(widths, beside), PassCosts(widths, (0.05,) * 7))
    speaker = opened(model, "auto", model, parallel=2, options=OPTIONS)
    with closing(speaker) as assistant:
        assert (assistant.models.draft_models is not None) is pays
        names = ["lookup", *["model"] * pays, "forced"]
        for policy in assistant.policies:
            assert isinstance(policy, AdaptivePolicy)
            # Those of packages come last.
            assert [each.name for each in policy.drafters][: len(names)] == names
