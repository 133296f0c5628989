"""A pull that is killed at random moments, until one comes through.

From the root of a checkout: `python -m lab.kills.pull [--kills 50] [--seed 0]`. It prints how many
bytes the hub sent in all, beside the size of the file.
"""

import argparse
import random
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.models.loopback_hub import loopback_hub
from tests.models.toy_machine import ToyMachine


@dataclass(frozen=True, slots=True)
class Killed:
    """How often it was killed in the middle, and what all tries together were sent."""

    kills: int
    sent_bytes: int


def kill_until_done(machine: ToyMachine, name: str, kills: int, seed: int) -> Killed:
    """Pull and kill, `kills` times, then let one pull finish; see that the store is sound throughout.

    Args:
        machine: its hub has to be slow enough for so many kills.
        name: the model.
        kills: SIGKILLs that hit a live process.
        seed: of the moments.
    """
    moments = random.Random(seed)
    hub, done = machine.hub, 0
    while done < kills:
        before = hub.sent_bytes
        with machine.start("pull", "--quiet", name) as process:
            # Most moments lie in the transfer, some before it.
            patience = time.monotonic() + moments.uniform(0.2, 1.0)
            while hub.sent_bytes == before and time.monotonic() < patience:
                time.sleep(0.005)
            time.sleep(moments.uniform(0.0, 0.25))
            alive = process.poll() is None
            process.kill()
            process.communicate()
        machine.assert_only_verified()
        assert alive, "the hub is too fast for so many kills"
        done += 1
    hub.pause_s = 0.0
    ended = machine.run("pull", "--quiet", name)
    assert ended.code == 0, ended.err
    machine.assert_only_verified()
    return Killed(done, hub.sent_bytes)


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
