"""A machine that falls short: a full disk, directories that can only be read, too little memory, a clock that is wrong."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random
from typing import BinaryIO

from lab.faults.ground import ANSWER, LINES, Ended, Ground, answer, batch, batch_arguments, chat
from lab.faults.limits import Limits
from lab.faults.soundness import (
    assert_clear,
    assert_fine,
    assert_kept,
    assert_sound_telemetry,
    assert_told,
    messages,
    records,
    unsaved,
    with_chats_around,
)
from lab.faults.trial import trial

_ORDINARY = Limits(ordinary=True)
_FULL, _READ_ONLY = "the disk is full", "the data directory can only be read"
_SMALL, _CLOCK = "120 to 420 MB of address space", "a wall clock that is wrong, or jumps"


def _assert_whole(ground: Ground, before: list[str] | None = None) -> None:
    """See that a batch that is started again ends with all records, those in front that were there before."""
    assert_fine(batch(ground))
    assert records(ground.output) == LINES
    assert before is None or before == LINES[: len(before)]


def _full_device() -> AbstractContextManager[BinaryIO]:
    return Path("/dev/full").open("wb")


@trial("run", _CLOCK, short=True)
def run_by_a_wrong_clock(ground: Ground, chance: Random) -> str:
    wrong = answer(ground, variables=ground.wrong_clock(chance))
    assert_fine(wrong)
    right = answer(ground)
    assert_fine(right)
    assert wrong.out == right.out
    assert_sound_telemetry(ground)
    return ""


@trial("chat", _CLOCK)
def chat_by_a_wrong_clock(ground: Ground, chance: Random) -> str:
    with with_chats_around(ground, "One?", "Two?"):
        for _ in range(2):
            assert_fine(chat(ground, "One?", "Two?", variables=ground.wrong_clock(chance)))
    assert len(messages(ground)) == 12
    return ""


@trial("batch", _CLOCK)
def batch_by_a_wrong_clock(ground: Ground, chance: Random) -> str:
    assert_fine(batch(ground, variables=ground.wrong_clock(chance)))
    assert records(ground.output) == LINES
    assert_fine(batch(ground))
    return ""


@trial("run", _FULL)
def run_on_a_full_disk(ground: Ground, chance: Random) -> str:
    ended = answer(ground, limits=Limits(file_bytes=chance.choice([0, 100, 20_000])))
    assert_fine(ended)
    assert ended.out.strip(), "an answer needs no disk"
    assert_sound_telemetry(ground)
    assert_fine(answer(ground))
    return ended.told if "tokens/s" not in ended.told else ""


@trial("chat", _FULL, short=True)
def chat_on_a_full_disk(ground: Ground, chance: Random) -> str:
    with with_chats_around(ground):
        size = ground.history.stat().st_size
        room = chance.choice([0, size, size + 8192])
        ended = chat(ground, "One?", "Two?", limits=Limits(file_bytes=room))
        assert ended.code == 0, ended.err
        assert_told(ended)
        told = unsaved(ended)
        # Where it says of nothing that it is not saved, all is.
        assert_kept(ground, ["Before.", *(() if told else ("One?", "Two?"))])
    return told


@trial("batch", _FULL, short=True)
def batch_on_a_full_disk(ground: Ground, chance: Random) -> str:
    told = assert_clear(batch(ground, limits=Limits(file_bytes=chance.randint(0, 3000))))
    _assert_whole(ground, records(ground.output))  # whole ones only: the torn one was taken back
    return told


@trial("run", "stdout is full", short=True)
def run_into_a_full_device(ground: Ground, _: Random) -> str:
    with _full_device() as full:
        told = assert_clear(answer(ground, stdout=full))
    assert "No space left" in told
    assert_fine(answer(ground))
    return told


@trial("chat", "stdout is full")
def chat_into_a_full_device(ground: Ground, _: Random) -> str:
    with _full_device() as full:
        told = assert_clear(chat(ground, "Name a river.", stdout=full))
    assert_fine(chat(ground, "Still there?"))
    assert_kept(ground, ["Still there?"])
    return told


@trial("batch", "the output is full")
def batch_into_a_full_device(ground: Ground, _: Random) -> str:
    source = batch_arguments(ground)[0]
    to = ("-o", "/dev/full", "--max-tokens", "8", *ANSWER)
    told = assert_clear(ground.run("batch", source, *to))
    _assert_whole(ground)
    return told


@trial("run", _READ_ONLY)
def run_in_a_read_only_home(ground: Ground, _: Random) -> str:
    return _read_only(ground, lambda: answer(ground, limits=_ORDINARY))


@trial("chat", _READ_ONLY)
def chat_in_a_read_only_home(ground: Ground, _: Random) -> str:
    with with_chats_around(ground):
        told = _read_only(ground, lambda: chat(ground, "One?", limits=_ORDINARY))
        assert "cannot be saved" in told
        assert_kept(ground, ["Before."])
        assert len(messages(ground)) == 2
    return told


@trial("batch", "directories can only be read")
def batch_in_a_read_only_home(ground: Ground, _: Random) -> str:
    output = ground.folder / "out" / "out.jsonl"
    output.parent.mkdir()
    output.parent.chmod(0o500)
    told = assert_clear(batch(ground, "-o", str(output), limits=_ORDINARY))
    output.parent.chmod(0o700)
    assert not output.exists()
    _read_only(ground, lambda: batch(ground, limits=_ORDINARY))
    assert records(ground.output) == LINES
    assert_fine(batch(ground, "-o", str(output)))
    assert records(output) == LINES
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
    return next((line for line in ended.err.splitlines() if "saved" in line), "")


def _too_little(chance: Random) -> Limits:
    return Limits(memory_bytes=chance.randint(120, 420) << 20)


def _complaint(ended: Ended) -> str:
    """See that it succeeded, or failed by itself or in native code and said nothing but why; return what it said then."""
    if ended.code == 0:
        return ""
    if ended.err.startswith("OpenBLAS error: Memory allocation"):  # numpy's, before we are there
        return ended.err.strip()
    told = assert_told(ended)
    assert told, f"code {ended.code}, and not a word"
    return told


@trial("run", _SMALL, short=True)
def run_without_memory(ground: Ground, chance: Random) -> str:
    ended = answer(ground, limits=_too_little(chance))
    assert_fine(answer(ground))
    return _complaint(ended)


@trial("chat", _SMALL)
def chat_without_memory(ground: Ground, chance: Random) -> str:
    with with_chats_around(ground):
        told = _complaint(chat(ground, "One?", "Two?", limits=_too_little(chance)))
        assert_kept(ground, ["Before."])
    return told


@trial("batch", _SMALL)
def batch_without_memory(ground: Ground, chance: Random) -> str:
    told = _complaint(batch(ground, limits=_too_little(chance)))
    _assert_whole(ground, records(ground.output))
    return told
