"""`python -m lab.faults`: every fault against every command, and the table of docs/reliability.md (`--into` writes it there).

Needs SmolLM2-135M, which is fetched if it is missing. Every kind is tried `--rounds` times, quick ones twice as often; what
fails is part of the table. Ends with code 1 where anything was lost.
"""

import argparse
import signal
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

from lab.faults.campaign import Row, campaign, replaced, table
from lab.faults.trial import TRIALS
from localspec.models.pull import pull
from localspec.storage.paths import data_dir


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="trials at a time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", help="words of command and fault; repeatable")
    parser.add_argument("--into", type=Path, help="a document whose table is to be this one")
    asked = parser.parse_args()
    # In a shell's background Ctrl-C is ignored, and would be by every command of the trials.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.default_int_handler)
    wanted = asked.only or [""]
    chosen = [t for t in TRIALS if any(words in f"{t.verb}: {t.fault}" for words in wanted)]
    (model, *_) = pull("smollm2-135m")
    start = time.monotonic()
    rows = [Row(each) for each in chosen]
    with suppress(KeyboardInterrupt):  # what was tried until then is told
        campaign(
            rows,
            model,
            data_dir() / "calibration",
            partial(print, file=sys.stderr, flush=True),
            rounds=asked.rounds,
            jobs=asked.jobs,
            seed=asked.seed,
        )
    told = table(rows)
    print(told, end="")
    if asked.into is not None:
        document = replaced(asked.into.read_text(encoding="utf-8"), told)
        asked.into.write_text(document, encoding="utf-8")
    print(f"{time.monotonic() - start:.0f} s", file=sys.stderr)
    sys.exit(1 if any(row.failures for row in rows) else 0)


if __name__ == "__main__":
    main()
