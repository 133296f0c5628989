"""A full disk, directories that can only be read, memory that runs out."""

from collections.abc import Callable
from pathlib import Path
from random import Random

from lab.faults.ground import ANSWER, Ended, Ground, answer, batch, batch_arguments, chat
from lab.faults.limits import Limits
from lab.faults.soundness import (
    assert_clear,
    assert_fine,
    assert_kept,
    assert_sound_telemetry,
    assert_told,
    messages,
    records,
)
from lab.faults.trial import Trial

_ORDINARY = Limits(ordinary=True)
_LINES = [f"line-{n}" for n in range(6)]


def run_on_a_full_disk(ground: Ground, chance: Random) -> str:
    ended = answer(ground, limits=Limits(file_bytes=chance.choice([0, 100, 20_000])))
    assert_fine(ended)
    assert ended.out.strip(), "an answer needs no disk"
    assert_sound_telemetry(ground)
    assert_fine(answer(ground))
    return ended.told if "tokens/s" not in ended.told else ""


def run_into_a_full_device(ground: Ground, _: Random) -> str:
    with Path("/dev/full").open("wb") as full:
        told = assert_clear(answer(ground, stdout=full))
    assert "No space left" in told
    assert_fine(answer(ground))
    return told


def batch_into_a_full_device(ground: Ground, _: Random) -> str:
    source = batch_arguments(ground)[0]
    to = ("-o", "/dev/full", "--max-tokens", "8", *ANSWER)
    told = assert_clear(ground.run("batch", source, *to))
    assert_fine(batch(ground))
    assert records(ground.folder / "out.jsonl") == _LINES
    return told


def chat_into_a_full_device(ground: Ground, _: Random) -> str:
    with Path("/dev/full").open("wb") as full:
        told = assert_clear(chat(ground, "Name a river.", stdout=full))
    assert_fine(chat(ground, "Still there?"))
    assert_kept(ground, ["Still there?"])
    return told


def chat_on_a_full_disk(ground: Ground, chance: Random) -> str:
    assert_fine(chat(ground, "Before."))
    size = (ground.data / "history" / "history.db").stat().st_size
    room = chance.choice([0, size, size + 8192])
    ended = chat(ground, "One?", "Two?", limits=Limits(file_bytes=room))
    assert ended.code == 0, ended.err
    assert_told(ended)
    told = [line for line in ended.err.splitlines() if "cannot be saved" in line]
    assert_kept(ground, ["Before."])
    if not told:  # then it said of nothing that it is not saved
        assert_kept(ground, ["Before.", "One?", "Two?"])
    assert_fine(chat(ground, "After."))
    assert_kept(ground, ["Before.", "After."])
    return "".join(told[:1])


def batch_on_a_full_disk(ground: Ground, chance: Random) -> str:
    output = ground.folder / "out.jsonl"
    ended = batch(ground, limits=Limits(file_bytes=chance.randint(0, 3000)))
    told = assert_clear(ended)
    before = records(output)  # whole ones only: the torn one was taken back
    assert_fine(batch(ground))
    assert records(output) == _LINES
    assert before == _LINES[: len(before)]
    return told


def run_in_a_read_only_home(ground: Ground, _: Random) -> str:
    return _read_only(ground, lambda: answer(ground, limits=_ORDINARY))


def chat_in_a_read_only_home(ground: Ground, _: Random) -> str:
    assert_fine(chat(ground, "Before."))
    told = _read_only(ground, lambda: chat(ground, "One?", limits=_ORDINARY))
    assert "cannot be saved" in told
    assert_kept(ground, ["Before."])
    assert len(messages(ground)) == 2
    assert_fine(chat(ground, "After."))
    assert_kept(ground, ["Before.", "After."])
    return told


def batch_in_a_read_only_home(ground: Ground, _: Random) -> str:
    ground.folder.joinpath("out").mkdir()
    output = ground.folder / "out" / "out.jsonl"
    output.parent.chmod(0o500)
    told = assert_clear(batch(ground, "-o", str(output), limits=_ORDINARY))
    output.parent.chmod(0o700)
    assert not output.exists()
    _read_only(ground, lambda: batch(ground, limits=_ORDINARY))
    assert records(ground.folder / "out.jsonl") == _LINES
    assert_fine(batch(ground, "-o", str(output)))
    assert records(output) == _LINES
    return told


def _read_only(ground: Ground, act: Callable[[], Ended]) -> str:
    """Do something while nothing under the data directory can be written; it has to work all the same."""
    paths = [ground.data, *(each for each in ground.data.rglob("*") if not each.is_symlink())]
    modes = {each: each.stat().st_mode for each in paths}
    for each in paths:
        each.chmod(0o500 if each.is_dir() else 0o400)
    try:
        ended = act()
    finally:
        for each, mode in modes.items():
            each.chmod(mode)
    assert_fine(ended)
    saved = [line for line in ended.err.splitlines() if "saved" in line]
    return "".join(saved[:1])


def _too_little(chance: Random) -> Limits:
    return Limits(memory_bytes=chance.randint(120, 420) << 20)


def run_without_memory(ground: Ground, chance: Random) -> str:
    ended = answer(ground, limits=_too_little(chance))
    assert_fine(answer(ground))
    if ended.code == 0:
        return ""
    return assert_one_complaint(ended)


def batch_without_memory(ground: Ground, chance: Random) -> str:
    ended = batch(ground, limits=_too_little(chance))
    before = records(ground.folder / "out.jsonl")
    told = "" if ended.code == 0 else assert_one_complaint(ended)
    assert_fine(batch(ground))
    assert records(ground.folder / "out.jsonl") == _LINES
    assert before == _LINES[: len(before)]
    return told


def chat_without_memory(ground: Ground, chance: Random) -> str:
    assert_fine(chat(ground, "Before."))
    ended = chat(ground, "One?", "Two?", limits=_too_little(chance))
    told = "" if ended.code == 0 else assert_one_complaint(ended)
    assert_kept(ground, ["Before."])
    assert_fine(chat(ground, "After."))
    assert_kept(ground, ["Before.", "After."])
    return told


def assert_one_complaint(ended: Ended) -> str:
    """See that it failed, by itself or in native code, and that the only thing said is why."""
    assert ended.code != 0
    if ended.err.startswith("OpenBLAS error: Memory allocation"):  # numpy's, before we are there
        return ended.err.strip()
    told = assert_told(ended)
    assert told, f"code {ended.code}, and not a word"
    return told


TRIALS = [
    Trial("the disk is full", "run", run_on_a_full_disk),
    Trial("the disk is full", "chat", chat_on_a_full_disk, short=True),
    Trial("the disk is full", "batch", batch_on_a_full_disk, short=True),
    Trial("stdout is full", "run", run_into_a_full_device, short=True),
    Trial("stdout is full", "chat", chat_into_a_full_device),
    Trial("the output is full", "batch", batch_into_a_full_device),
    Trial("the data directory can only be read", "run", run_in_a_read_only_home),
    Trial("the data directory can only be read", "chat", chat_in_a_read_only_home),
    Trial("directories can only be read", "batch", batch_in_a_read_only_home),
    Trial("120 to 420 MB of address space", "run", run_without_memory, short=True),
    Trial("120 to 420 MB of address space", "chat", chat_without_memory),
    Trial("120 to 420 MB of address space", "batch", batch_without_memory),
]
