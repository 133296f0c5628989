"""A result as text and as JSON."""

import json

import pytest

from localspec.bench.document import as_json
from localspec.bench.modes import PEER_MODES
from localspec.bench.prompts import BenchPrompt
from localspec.bench.result import Result, result
from localspec.bench.summary import Cell
from localspec.bench.table import grid, table
from localspec.bench.trial import Trial
from tests.bench.runs import a_round, a_trial

PROMPTS = [BenchPrompt("code", "a"), BenchPrompt("summarise", "b")]
MODES = ["off", "auto", "model:3", *PEER_MODES]
SPEEDS = dict(zip(MODES, (1.0, 1.2, 0.5, 1.1, 0.6, 1.3, 1.0, 1.0), strict=True))
SETTING: dict[str, object] = {
    "machine": "a machine, 2 cores",
    "target": {"name": "synthetic 4x toy", "bytes": 10, "synthetic": 4},
    "draft_model": None,
}


def trials(temperature: float = 0.0) -> list[Trial]:
    """Return two repeats of every mode, each speed exact, all in one group."""
    found = []
    for prompt in (0, 1):
        for repeat in (0, 1):
            for mode, speed in SPEEDS.items():
                drafts = mode in {"auto", "model:3"}
                rounds = [a_round(3, 2, drafter="model", draft_s=0.03)] if drafts else [a_round()]
                found.append(
                    a_trial(
                        mode,
                        wall_s=1 / speed,
                        first_s=0.1 / speed,
                        prompt=prompt,
                        repeat=repeat,
                        temperature=temperature,
                        rounds=rounds if mode not in PEER_MODES else (),
                    )
                )
    return found


def made(n_planned: int = 32) -> Result:
    return result(trials(), PROMPTS, MODES, SETTING, n_planned)


def test_the_best_of_the_peers_modes_is_who_a_mode_is_compared_with() -> None:
    duels = {duel.cell: duel for duel in made().duels}
    auto = duels[Cell(0.0, "code", "auto")]
    assert auto.peer == "server:ngram-simple"
    assert auto.ratio.ratio == pytest.approx(1.2 / 1.3)
    assert duels[Cell(0.0, "all", "auto")].ratio.ratio == pytest.approx(1.2 / 1.3)
    assert duels[Cell(0.0, "code", "off")].ratio.ratio == pytest.approx(1 / 1.3)


def test_every_ratio_has_a_row_in_the_json() -> None:
    document = json.loads(as_json(made()))
    rows = {(row["workload"], row["mode"]): row for row in document["ratios"]}
    assert len(rows) == 3 * (len(MODES) - 1)
    for (_, mode), row in rows.items():
        assert row["ratio"] == pytest.approx(SPEEDS[mode])
        assert row["low"] == pytest.approx(row["ratio"])
        assert row["high"] == pytest.approx(row["ratio"])
        assert row["temperature"] == 0
    assert document["target"]["synthetic"] == 4
    assert document["runs"] == document["runs_planned"] == 32
    assert set(document["costs"]["target_pass_s_by_width"]) == {"1", "4"}
    predicted = {(row["workload"], row["mode"]) for row in document["predictions"]}
    assert predicted == {(w, m) for w in ("code", "summarise") for m in ("auto", "model:3")}


def test_a_single_pair_of_runs_has_no_interval_in_the_json() -> None:
    measured = [a_trial(), a_trial("auto")]
    document = json.loads(as_json(result(measured, PROMPTS, MODES, SETTING, 32)))
    (row,) = document["ratios"]
    assert (row["low"], row["high"], row["pairs"]) == (None, None, 1)


def test_no_line_is_wider_than_eighty_columns() -> None:
    assert max(map(len, table(made()).splitlines())) <= 80


@pytest.mark.parametrize("width", [20, 40, 60])
def test_a_narrow_table_says_the_same_on_more_lines(width: int) -> None:
    narrow, wide = table(made(), width), table(made(), 200)
    assert sorted(narrow.split()) == sorted(wide.split())
    assert max(map(len, narrow.splitlines())) <= max(width, 29)


def test_a_synthetic_target_is_labelled() -> None:
    assert "synthetic 4x toy" in table(made())


def test_an_interruption_is_told_with_what_there_is() -> None:
    text = table(made(n_planned=100))
    assert "interrupted: 32 of 100 runs" in text
    assert "1.200" in text
    assert "interrupted" not in table(made())


def test_columns_that_do_not_fit_follow_on_lines_of_their_own() -> None:
    lines = grid(["", "one", "two"], [["name", "1", "2"]], 10)
    assert lines == ["      one", "    two", "name    1", "      2"]
    assert grid(["", "one", "two"], [["name", "1", "2"]], 80) == [
        "      one  two",
        "name    1    2",
    ]
