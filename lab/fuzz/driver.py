"""A target's own process: `python -m lab.fuzz.driver NAME RUNS SECONDS CORPUS`."""

import importlib
import os
import random
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from lab.fuzz.documents import changed
from lab.fuzz.mutation import mutants

MOST_INPUT_BYTES = 4096
MOST_MB = 1500
_DOCUMENTS = 0.5
"""Share of mutations that change JSON as what it is, where there is any."""


def main() -> None:
    """Run one target."""
    name, runs, seconds, corpus = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    try:
        atheris: Any = importlib.import_module("atheris")
    except ImportError:
        atheris = None
    include = ["localspec"]
    with atheris.instrument_imports(include=include) if atheris else nullcontext():
        load = importlib.import_module("lab.fuzz.target").load
        target = load(name)

    def one(data: bytes) -> None:
        try:
            target.check(data)
        except BaseException:
            print(f"input: {data!r}", file=sys.stderr, flush=True)
            raise

    if atheris is None:
        print("atheris is not installed: blind mutation", file=sys.stderr)
        end_s, count = time.monotonic() + seconds, 0
        for data in mutants(target.seeds, runs, seed=time.time_ns()):
            one(data)
            count += 1
            if time.monotonic() > end_s:
                break
        print(f"stat::number_of_executed_units: {count}")
        return

    def mutated(data: bytes, most_bytes: int, seed: int) -> bytes:
        chance = random.Random(seed)
        document = changed(data, chance) if chance.random() < _DOCUMENTS else None
        if document is None or len(document) > most_bytes:
            found: bytes = atheris.Mutate(data, most_bytes)
            return found
        return document

    for number, seed in enumerate(target.seeds):
        (corpus / f"seed{number:02}").write_bytes(seed)
    options = [
        f"-runs={runs}",
        f"-max_total_time={seconds}",
        f"-max_len={MOST_INPUT_BYTES}",
        f"-rss_limit_mb={MOST_MB}",
        "-timeout=1200",
        "-print_final_stats=1",
        f"-artifact_prefix={corpus.parent}{os.sep}{name}-",
        str(corpus),
    ]
    atheris.Setup([sys.argv[0], *options], one, custom_mutator=mutated)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
