"""All trials, and the table of what came of them."""

import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.faults import clocks, damage, deaths, neighbours, pulls, shortages, statistics
from tests.faults.ground import Ground
from tests.faults.trial import Trial

TRIALS: list[Trial] = [
    each
    for room in (statistics, pulls, damage, neighbours, clocks, shortages, deaths)
    for each in room.TRIALS
]


@dataclass(slots=True)
class Row:
    """What came of one fault, tried several times."""

    trial: Trial
    tried: int = 0
    told: set[str] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)


def tried(trial: Trial, model: Path, measured: Path | None, chance: Random) -> str:
    """Try once, on ground of its own; return what was said."""
    with tempfile.TemporaryDirectory() as folder:
        ground = Ground(Path(folder), model, measured)
        return trial.act(ground, chance).replace(folder, "…")


def campaign(
    rows: Sequence[Row],
    model: Path,
    measured: Path | None,
    rounds: int,
    seed: int,
    tell: Callable[[str], None],
) -> None:
    """Try everything so many times; a failure is told at once, and the rest goes on."""
    for number in range(rounds):
        for row in rows:
            place = f"{row.trial.verb}: {row.trial.fault}"
            try:
                told = tried(row.trial, model, measured, Random(f"{seed} {number} {place}"))
            except Exception as error:
                row.tried += 1
                where = traceback.extract_tb(error.__traceback__)[-1]
                row.failures.append(
                    f"round {number}, {where.name}, line {where.lineno}: {type(error).__name__}: {error}"
                )
                tell(f"FAILED {place}: {row.failures[-1]}")
                continue
            row.tried += 1
            row.told |= {told} - {""}
            tell(f"ok {place}: {told}")


def table(rows: Sequence[Row]) -> str:
    """Return the rows as Markdown."""
    lines = ["| command | fault | tried | lost | said, for example |", "|---|---|---|---|---|"]
    for row in rows:
        lost = "nothing" if not row.failures else f"**{len(row.failures)} failed**"
        said = min(row.told, key=len, default="").removeprefix("localspec: ").replace("|", "\\|")
        lines.append(
            f"| {row.trial.verb} | {row.trial.fault} | {row.tried} | {lost} | {said[:160]} |"
        )
    return "\n".join(lines) + "\n"
