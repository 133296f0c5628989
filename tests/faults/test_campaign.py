"""The short form: one trial of each kind that is quick; `python -m lab.faults` tries them all, many times."""

from pathlib import Path
from random import Random

import pytest

from lab.faults.campaign import BEGIN, END, Row, replaced, table, tried
from lab.faults.ground import Ground
from lab.faults.trial import TRIALS, Trial
from localspec.storage.paths import data_dir

pytestmark = pytest.mark.slow


@pytest.mark.weights
@pytest.mark.parametrize(
    "trial", [each for each in TRIALS if each.short], ids=lambda each: f"{each.verb}: {each.fault}"
)
def test_nothing_is_lost(trial: Trial, smollm2_path: Path) -> None:
    tried(trial, smollm2_path, data_dir() / "calibration", Random(0))


def fails(_: Ground, chance: Random) -> str:
    assert chance.random() < 0.8, "it is gone"  # 0.84 and 0.13
    return "localspec: it is | as it was"


def test_the_table_has_every_try_and_every_failure() -> None:
    row = Row(Trial("the sky falls", "run", fails))
    for seed in range(2):
        row.note(Path("/nowhere"), None, Random(seed))
    told = table([row])
    assert "| run | the sky falls | 2 | **1 failed** | it is \\| as it was |" in told
    assert "2 trials of 1 kinds in one run, 1 failed." in told
    assert "- run: the sky falls: fails, line" in told


def test_a_document_gets_the_table_and_keeps_all_else() -> None:
    document = f"before\n{BEGIN}old\n{END}after\n"
    assert replaced(document, "new\n") == f"before\n{BEGIN}new\n{END}after\n"
    with pytest.raises(ValueError, match="the document has no"):
        replaced("before\nafter\n", "new\n")
