"""`stats` and what it reads: killed, without room, beside writers, from a record that is damaged or of an earlier version."""

import threading
import time
from pathlib import Path
from random import Random

from lab.faults.damage import spoil
from lab.faults.ground import CLOCK, Ended, Ground, answer
from lab.faults.limits import Limits
from lab.faults.shortages import assert_one_complaint
from lab.faults.soundness import (
    assert_clear,
    assert_fine,
    assert_sound_telemetry,
    assert_told,
)
from lab.faults.trial import Trial
from localspec.telemetry.log import BEFORE, FILE


def _stats(ground: Ground, *arguments: str, **more: object) -> Ended:
    return ground.run("stats", *arguments, **more)  # type: ignore[arg-type]


def _recorded(ground: Ground, count: int = 1) -> Path:
    """Have so many replies recorded; return the log."""
    for _ in range(count):
        assert_fine(answer(ground))
    assert assert_sound_telemetry(ground) == count
    return ground.data / "telemetry" / FILE


def killed(ground: Ground, chance: Random) -> str:
    _recorded(ground)
    with ground.started("stats") as running:
        time.sleep(chance.uniform(0, 0.4))
        running.process.kill()
    assert assert_sound_telemetry(ground) == 1
    assert_fine(_stats(ground))
    return ""


def full_output(ground: Ground, _: Random) -> str:
    _recorded(ground)
    with Path("/dev/full").open("wb") as full:
        told = assert_clear(_stats(ground, stdout=full))
    page = ground.folder / "page.html"
    told = assert_clear(_stats(ground, "--html", str(page), limits=Limits(file_bytes=100)))
    assert_fine(_stats(ground, "--html", str(page)))
    assert page.read_text().rstrip().endswith("</html>")
    return told


def read_only(ground: Ground, _: Random) -> str:
    database = _recorded(ground)
    folder = database.parent
    modes = {each: each.stat().st_mode for each in (*folder.iterdir(), folder)}
    for each in modes:
        each.chmod(0o500 if each.is_dir() else 0o400)
    limits = Limits(ordinary=True)
    ended = _stats(ground, limits=limits)
    running = answer(ground, limits=limits)
    for each, mode in modes.items():
        each.chmod(mode)
    assert_fine(ended)
    assert_fine(running)
    assert running.out.strip(), "what cannot be recorded is answered all the same"
    assert assert_sound_telemetry(ground) == 1
    _recorded_again(ground, 2)
    return next((line for line in running.err.splitlines() if "record" in line), "")


def _recorded_again(ground: Ground, count: int) -> None:
    assert_fine(answer(ground))
    assert assert_sound_telemetry(ground) == count
    assert_fine(_stats(ground))


def without_memory(ground: Ground, chance: Random) -> str:
    _recorded(ground)
    ended = _stats(ground, limits=Limits(memory_bytes=chance.randint(60, 160) << 20))
    told = assert_told(ended) if ended.code == 0 else assert_one_complaint(ended)
    assert_fine(_stats(ground))
    return told


def wrong_clock(ground: Ground, chance: Random) -> str:
    _recorded(ground)
    variables = {
        "PYTHONPATH": str(CLOCK),
        "LOCALSPEC_WRONG_CLOCK": chance.choice(["past", "future", "jumping"]),
    }
    assert_fine(answer(ground, variables=variables))
    for arguments in ((), ("--json",), ("--since", "7d"), ("--replies", "5")):
        assert_fine(_stats(ground, *arguments, variables=variables))
        assert_fine(_stats(ground, *arguments))
    # A clock that is far ahead makes what was recorded today look old: only that may have gone.
    assert assert_sound_telemetry(ground) >= 1
    return ""


def beside_writers(ground: Ground, _: Random) -> str:
    _recorded(ground)
    wrote: list[Ended] = []
    writers = [threading.Thread(target=lambda: wrote.append(answer(ground))) for _ in range(2)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert_fine(_stats(ground))
    for each in wrote:
        assert_fine(each)
    assert assert_sound_telemetry(ground) == 3
    return ""


def damaged(ground: Ground, chance: Random) -> str:
    log = _recorded(ground, 2)
    content = bytearray(log.read_bytes())
    at = chance.choice([0, 100, len(content) // 2, len(content) - 10])
    content[at : at + 50] = chance.randbytes(min(50, len(content) - at))
    log.write_bytes(content)
    ended = _stats(ground)
    told = assert_told(ended) if ended.code == 0 else assert_clear(ended)  # none may be left
    running = answer(ground)
    assert_fine(running)
    assert running.out.strip()
    assert assert_sound_telemetry(ground) >= 1
    _recorded_again(ground, assert_sound_telemetry(ground) + 1)
    return told


def earlier(ground: Ground, _: Random) -> str:
    before = _recorded(ground).with_name(BEFORE)
    before.write_bytes(b"SQLite format 3\0")
    ended = _stats(ground)
    assert_fine(ended)
    assert "earlier" in ended.told
    _recorded_again(ground, 2)
    assert before.exists()
    return ended.told


def switch(ground: Ground, chance: Random) -> str:
    _recorded(ground)
    assert_fine(ground.run("telemetry", "on"))
    file = ground.data / "telemetry" / "switch.json"
    spoil(file, chance)
    spoiled = file.read_bytes()
    assert_fine(answer(ground))
    assert file.read_bytes() == spoiled
    assert_fine(_stats(ground))
    assert_fine(ground.run("telemetry", "on"))
    before = assert_sound_telemetry(ground)
    _recorded_again(ground, before + 1)
    return ""


TRIALS = [
    Trial("killed at a random moment", "stats", killed),
    Trial("its output is full", "stats", full_output),
    Trial("the data directory can only be read", "stats, run", read_only),
    Trial("60 to 160 MB of address space", "stats", without_memory),
    Trial("a wall clock that is wrong, or jumps", "stats", wrong_clock),
    Trial("beside two that write", "stats", beside_writers),
    Trial("the record of replies is damaged", "stats, run", damaged),
    Trial("an earlier version has left its record of rounds", "stats, run", earlier, short=True),
    Trial("the switch of the record is damaged", "stats, run", switch),
]
