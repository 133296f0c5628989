"""Kills a pull fifty times at random moments: what the store held, and what was fetched twice.

Run from the root of a checkout: `python -m benchmarks.kill_pull [--kills 50] [--seed 0]`.
"""

import argparse
import tempfile
import time
from pathlib import Path

from tests.models.kills import kill_until_done
from tests.models.loopback_hub import loopback_hub
from tests.models.toy_machine import ToyMachine


def main() -> None:
    """Run, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    size = 400_000 * arguments.kills
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, loopback_hub(with_storage=True) as hub:
        hub.pause_s = 0.01
        machine = ToyMachine(Path(folder), hub)
        machine.offer("toy", bytes(range(250)) * (size // 250))
        killed = kill_until_done(machine, "toy", arguments.kills, arguments.seed)
    print(
        f"{killed.kills} kills, {size} bytes, sent {killed.sent_bytes} "
        f"({killed.sent_bytes / size:.4f} of the size, {(killed.sent_bytes - size) / killed.kills:.0f} "
        f"bytes a kill), {time.monotonic() - start:.0f} s; no name in the store had other bytes"
    )


if __name__ == "__main__":
    main()
