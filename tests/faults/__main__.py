"""`python -m tests.faults --rounds 20`: every fault against every command, and the table of docs/reliability.md.

Needs SmolLM2-135M, which is fetched if it is missing. Ends with code 1 where anything was lost.
"""

import argparse
import signal
import sys
import time
from contextlib import suppress

from localspec.models.paths import data_dir
from localspec.models.pull import pull
from tests.faults.campaign import TRIALS, Row, campaign, table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", help="words of command and fault; repeatable")
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
            asked.rounds,
            asked.seed,
            lambda line: print(line, file=sys.stderr, flush=True),
        )
    print(table(rows), end="")
    count = sum(row.tried for row in rows)
    failed = sum(len(row.failures) for row in rows)
    print(
        f"\n{count} trials of {len(rows)} kinds, {failed} failed, {time.monotonic() - start:.0f} s."
    )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
