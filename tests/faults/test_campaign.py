"""Every fault against every command: the quick trials once, or all of them LOCALSPEC_FAULT_ROUNDS times."""

import os
from importlib import import_module
from pathlib import Path
from random import Random

import pytest

from lab.faults.ground import Ground
from lab.faults.trial import TRIALS, Trial
from localspec.storage.paths import data_dir

pytestmark = [pytest.mark.slow, pytest.mark.weights]

for _name in ("pulls", "files", "shortages", "deaths"):
    import_module(f"lab.faults.{_name}")
ROUNDS = int(os.environ.get("LOCALSPEC_FAULT_ROUNDS", "0"))


@pytest.mark.parametrize("number", range(ROUNDS or 1))
@pytest.mark.parametrize(
    "trial",
    [each for each in TRIALS if each.short or ROUNDS],
    ids=lambda each: f"{each.verb}: {each.fault}",
)
def test_nothing_is_lost(trial: Trial, number: int, smollm2_path: Path, tmp_path: Path) -> None:
    chance = Random(f"{number} {trial.verb}: {trial.fault}")
    print(trial.act(Ground(tmp_path, smollm2_path, data_dir() / "calibration"), chance))
