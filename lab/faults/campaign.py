"""All trials, and the table of what came of them."""

import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from itertools import repeat
from pathlib import Path
from random import Random

from lab.faults.ground import Ground
from lab.faults.trial import Trial

_CHEAP_S = 8.0
"""Seconds of a trial below which it is tried more often."""
_MORE = 2
BEGIN, END = "<!-- python -m lab.faults -->\n", "<!-- end -->\n"
"""What the table stands between in a document."""

for _name in ("pulls", "files", "shortages", "deaths", "servers"):
    import_module(f"lab.faults.{_name}")


@dataclass(slots=True)
class Row:
    """What came of one fault, tried several times."""

    trial: Trial
    tried: int = 0
    took_s: float = 0.0
    told: set[str] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)

    def note(self, model: Path, measured: Path | None, chance: Random) -> str:
        """Try once more; return what came of it."""
        began_s = time.monotonic()
        try:
            told = tried(self.trial, model, measured, chance)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            failure = f"{where.name}, line {where.lineno}: {type(error).__name__}: {error}"
            self.failures.append(" ".join(failure.split()))
            told = f"FAILED {self.failures[-1]}"
        else:
            self.told |= {told} - {""}
            told = f"ok {told}"
        self.tried += 1
        self.took_s += time.monotonic() - began_s
        return told


def tried(trial: Trial, model: Path, measured: Path | None, chance: Random) -> str:
    """Try once, on ground of its own; return what was said."""
    with tempfile.TemporaryDirectory() as folder:
        ground = Ground(Path(folder), model, measured)
        return trial.act(ground, chance).replace(folder, "…")


def campaign(
    rows: Sequence[Row],
    model: Path,
    measured: Path | None,
    report: Callable[[str], None],
    *,
    rounds: int,
    jobs: int,
    seed: int,
) -> None:
    """Try everything so many times, and what is quick more often; a failure is reported at once, and the rest goes on."""

    def act(row: Row, number: int) -> None:
        place = f"{row.trial.verb}: {row.trial.fault}"
        told = row.note(model, measured, Random(f"{seed} {number} {place}"))
        report(f"{number} {place}: {told}")

    with ThreadPoolExecutor(jobs) as pool:
        try:
            for number in range(_MORE * rounds):
                again = [
                    row for row in rows if number < rounds or row.took_s < _CHEAP_S * row.tried
                ]
                list(pool.map(act, again, repeat(number)))
        except KeyboardInterrupt:  # those that run are brought to an end
            pool.shutdown(cancel_futures=True)
            raise


def table(rows: Sequence[Row]) -> str:
    """Return the rows as Markdown."""
    lines = ["| command | fault | tried | lost | said, for example |", "|---|---|---|---|---|"]
    for row in rows:
        lost = "nothing" if not row.failures else f"**{len(row.failures)} failed**"
        said = min(row.told, key=len, default="").removeprefix("localspec: ")
        cells = (row.trial.verb, row.trial.fault, row.tried, lost, said.replace("|", "\\|")[:60])
        lines.append(f"| {' | '.join(map(str, cells))} |")
    count, failed = sum(row.tried for row in rows), sum(len(row.failures) for row in rows)
    kinds = sum(row.tried > 0 for row in rows)
    lines += ["", f"{count} trials of {kinds} kinds in one run, {failed} failed."]
    lines += [
        f"- {row.trial.verb}: {row.trial.fault}: {each}" for row in rows for each in row.failures
    ]
    return "\n".join(lines) + "\n"


def replaced(document: str, told: str) -> str:
    """Return a document with another table between its marks."""
    before, _, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"the document has no {BEGIN.strip()} and {END.strip()}")
    return f"{before}{BEGIN}{told}{END}{after}"
