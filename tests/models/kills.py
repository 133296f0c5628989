"""Pulls that are killed at random moments, until one comes through."""

import random
import time
from dataclasses import dataclass

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
    ended = machine.run("pull", "--quiet", name)
    assert ended.code == 0, ended.err
    machine.assert_only_verified()
    return Killed(done, hub.sent_bytes)
