"""The short form: one trial of each kind that is quick; `python -m tests.faults` tries them all, many times."""

from pathlib import Path
from random import Random

import pytest

from localspec.models.paths import data_dir
from tests.faults.campaign import TRIALS, tried
from tests.faults.trial import Trial

pytestmark = pytest.mark.weights


@pytest.mark.parametrize(
    "trial",
    [each for each in TRIALS if each.short],
    ids=lambda each: f"{each.verb}: {each.fault}",
)
def test_nothing_is_lost(trial: Trial, smollm2_path: Path) -> None:
    tried(trial, smollm2_path, data_dir() / "calibration", Random(0))
