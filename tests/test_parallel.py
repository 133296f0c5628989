"""open_parallel on real weights: how many at once, and what is given up for it."""

from pathlib import Path

import pytest

from localspec import parallel
from localspec.calibration.calibrated import Calibration
from localspec.decoding.costs import PassCosts
from localspec.decoding.crowd import CrowdPolicy
from localspec.decoding.lookup_drafter import LookupDrafter
from localspec.decoding.policy import FixedPolicy
from localspec.errors import ModelLoadError
from localspec.fitting import sequences_that_fit
from localspec.launch import Launch, prepare
from localspec.llama.options import LoadOptions
from localspec.models.gguf import read_header
from localspec.parallel import open_parallel

pytestmark = pytest.mark.weights

OPTIONS = LoadOptions(n_ctx=512, threads=1)


def launch(path: Path, draft: str = "off", draft_model: str | None = None) -> Launch:
    return Launch(target=str(path), draft=draft, draft_model=draft_model, options=OPTIONS)


def test_no_more_than_the_memory_holds(smollm2_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "sequences_that_fit", lambda *_: 2)
    prepared = prepare(launch(smollm2_path))
    with pytest.raises(ModelLoadError, match="3 sequences of 512 tokens do not fit"):
        open_parallel(prepared, 3)
    opened = open_parallel(prepared, None)
    assert opened.count <= 2
    opened.close()
    unfitted = open_parallel(prepared, 3, fit=False)
    assert unfitted.count == 3
    unfitted.close()


def test_auto_takes_what_the_costs_suggest(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = PassCosts((1, 2, 5, 64), (1.0, 1.1, 1.2, 60.0))
    found = Calibration(costs)
    monkeypatch.setattr(parallel, "calibrated", lambda *_: found)
    opened = open_parallel(prepare(launch(smollm2_path)), None)
    assert opened.count == 5
    assert opened.notes[-1] == "5 lines at a time"
    opened.close()


def test_each_sequence_drafts_for_itself_and_no_draft_model_is_loaded(smollm2_path: Path) -> None:
    path = str(smollm2_path)
    opened = open_parallel(prepare(launch(smollm2_path, "model", path)), 2)
    policies = [assistant.policy for assistant in opened.assistants]
    assert all(isinstance(policy, CrowdPolicy) for policy in policies)
    assert policies[0] is not policies[1]
    assert all(assistant.models.draft_model is None for assistant in opened.assistants)
    assert any("draft model" in note for note in opened.notes)
    opened.close()
    opened = open_parallel(prepare(launch(smollm2_path, "lookup")), 2)
    for assistant in opened.assistants:
        assert isinstance(assistant.policy, FixedPolicy)
        assert isinstance(assistant.policy.drafter, LookupDrafter)
    opened.close()


def test_fewer_sequences_fit_the_larger_they_are(smollm2_path: Path) -> None:
    header = read_header(smollm2_path)
    small = sequences_that_fit(header, LoadOptions(n_ctx=256))
    large = sequences_that_fit(header, LoadOptions(n_ctx=4096))
    assert small is not None
    assert large is not None
    assert small > 10 * large > 0
