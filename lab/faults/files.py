"""Files that are damaged, foreign, or of a later version, and model files that go, or become others, while they are loaded."""

import os
import shutil
import signal
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from random import Random

from lab.faults.ground import ANSWER, SHORT_CHAT, Ended, Ground, answer, batch, chat
from lab.faults.soundness import (
    assert_clear,
    assert_fine,
    assert_kept,
    assert_told,
    messages,
    unsaved,
    with_chats_around,
)
from lab.faults.trial import trial


def spoil(path: Path, chance: Random) -> None:
    """Make of a file what a fault may leave of it: nothing, noise, a part, a flipped byte, foreign JSON."""
    content = path.read_bytes()
    cut = chance.randrange(len(content) + 1)
    flipped = bytearray(content)
    if flipped:
        flipped[cut % len(flipped)] ^= 1 << chance.randrange(8)
    left = [b"", chance.randbytes(300), content[:cut], bytes(flipped)]
    path.write_bytes(chance.choice([*left, b'{"key": [1, 2]}', b"[" * 9000]))


@trial("run", "measurements are damaged")
def measurements(ground: Ground, chance: Random) -> str:
    automatic = ("--draft", "auto", "Name a river.")
    assert_fine(answer(ground, *automatic))
    files = list((ground.data / "calibration").glob("*.json"))
    assert files
    for each in files:
        spoil(each, chance)
    assert_fine(answer(ground, *automatic))
    assert_fine(answer(ground, *automatic))
    return ""


@trial("batch", "kept hashes are damaged")
def hashes(ground: Ground, chance: Random) -> str:
    own = ground.folder / "own.gguf"
    shutil.copyfile(ground.model, own)
    assert_fine(batch(ground, "--target", str(own)))
    spoil(ground.data / "hashes.json", chance)
    (ground.folder / "out.jsonl").unlink()
    assert_fine(batch(ground, "--target", str(own)))
    return ""


@trial("chat", "the prompt cache is damaged", short=True)
def states(ground: Ground, chance: Random) -> str:
    long = " ".join(["Before, it was long enough to be worth keeping."] * 28)
    assert_fine(chat(ground, long))
    files = [each for each in (ground.data / "reads").rglob("*.*") if each.is_file()]
    assert files, "a chat keeps what was read"
    for each in files:
        spoil(each, chance)
    assert_fine(ground.run(*SHORT_CHAT, "--continue", said=b"After.\n"))
    assert_kept(ground, [long, "After."])
    return ""


def _refused(file: Path, content: bytes, attempts: Sequence[Callable[[], Ended]]) -> str:
    """See that a broken file of the user's is refused by name, and that the first attempt succeeds without it."""
    file.write_bytes(content)
    lines = [assert_clear(attempt()) for attempt in attempts]
    assert all(str(file) in line for line in lines), lines
    file.unlink()
    assert_fine(attempts[0]())
    return lines[0]


@trial("run", "the user's settings are damaged")
def settings(ground: Ground, chance: Random) -> str:
    broken = chance.choice([b"\xff\xfe", b"temperature = ", b'threads = "a"', b"[" * 9000])
    attempts = (lambda: answer(ground), lambda: chat(ground, "Hi"))
    return _refused(ground.config / "config.toml", broken, attempts)


@trial("run", "the user's registry is damaged")
def registry(ground: Ground, chance: Random) -> str:
    broken = [b"\xff\xfe", b"[models", b'[models."a"]\nfile = 1\n', b"[pairs.x]\n"]
    file = ground.config / "models.toml"
    return _refused(file, chance.choice(broken), [lambda: answer(ground)])


@trial("chat", "the chat's preferences are damaged")
def preferences(ground: Ground, chance: Random) -> str:
    file = ground.config / "chat.toml"
    file.write_bytes(chance.choice([b"\xff\xfe", b"theme = ", b"[personas]\na = 1\n", b"[" * 9000]))
    ended = chat(ground, "Name a river.")
    told = assert_told(ended) if ended.code == 0 else assert_clear(ended)
    file.unlink()
    assert_fine(chat(ground, "Still there?"))
    return told if ended.code else ""


@trial("chat", "the history is damaged")
def history(ground: Ground, chance: Random) -> str:
    before = [f"Before {n}." for n in range(3)]
    for each in before:
        assert_fine(chat(ground, each))
    database = ground.history
    whole = database.read_bytes()
    noise = bytearray(whole)
    at = chance.choice([0, 100, 4096, len(whole) // 2])
    noise[at : at + 600] = chance.randbytes(600)
    database.write_bytes(noise[: len(whole)])
    left = database.read_bytes()
    ended = chat(ground, "One?", "Two?")
    assert ended.code == 0, ended.err
    assert_told(ended)
    told = unsaved(ended)
    if told and ended.err.startswith(told):
        # Seen when it was opened: the file is as it was, for whoever can mend it.
        assert database.read_bytes() == left
    for file in database.parent.glob("history.db*"):
        file.unlink()
    database.write_bytes(whole)  # from the user's backup
    assert_fine(chat(ground, "After."))
    assert_kept(ground, [*before, "After."])
    return told


@trial("chat", "the history is of a later version")
def later_history(ground: Ground, _: Random) -> str:
    with with_chats_around(ground):
        version = _versioned(ground.history)
        _versioned(ground.history, version + 1)
        before = ground.history.read_bytes()
        ended = chat(ground, "One?")
        assert_fine(ended)
        told = next(line for line in ended.err.splitlines() if "later localspec" in line)
        assert ground.history.read_bytes() == before
        _versioned(ground.history, version)
    assert len(messages(ground)) == 4
    return told


def _versioned(database: Path, version: int | None = None) -> int:
    """Return a database's version, which is set first where one is given."""
    with closing(sqlite3.connect(database)) as connection:
        if version is not None:
            connection.execute(f"PRAGMA user_version = {version}")
            connection.commit()
        (found,) = connection.execute("PRAGMA user_version").fetchone()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return int(found)


@trial("run, chat", "the model's file is damaged")
def model_file(ground: Ground, chance: Random) -> str:
    own = ground.folder / "own.gguf"
    content = bytearray(ground.model.read_bytes()[: 4 << 20])
    for _ in range(chance.randint(1, 40)):
        content[chance.randrange(2000)] ^= 1 << chance.randrange(8)
    own.write_bytes(content)
    told = assert_clear(answer(ground, "--target", str(own), "Hi"))
    assert_clear(ground.run("chat", "--plain", *ANSWER, "--target", str(own), said=b"Hi\n"))
    assert_fine(answer(ground))
    return told


@trial("run", "`rm` beside it")
def rm_beside_run(ground: Ground, chance: Random) -> str:
    with ground.started("run", *ANSWER, "--max-tokens", "60", "Tell a story.") as running:
        running.until(lambda each: chance.random() < 0.02 or len(each.out) > 0)
        removed = ground.run("rm", "--yes", "smollm2-135m")
        ended = running.end()
    assert_fine(removed)
    assert not ground.blob.is_symlink()
    told = assert_told(ended)
    said = assert_clear(answer(ground, "--offline", "Hi"))
    assert "could not be downloaded" in said
    ground.blob.symlink_to(ground.model.resolve())
    assert_fine(answer(ground))
    return told if ended.code else said


def _chat_on_another_file(ground: Ground, change: Callable[[], object]) -> Ended:
    """Change the model's file between two questions of a chat, which keeps what is loaded, and start the engine anew."""
    with ground.started(*SHORT_CHAT) as running:
        running.say("Name a river.")
        running.until_answers(1)
        change()
        running.say("Name another one.")
        running.until_answers(2)
        running.say("/restart")
        running.say("And another one.")
        ended = running.end()
    assert_told(ended)
    assert_kept(ground, ["Name a river.", "Name another one."])
    return ended


def _restore(ground: Ground) -> None:
    ground.blob.unlink(missing_ok=True)
    ground.blob.symlink_to(ground.model.resolve())
    assert_fine(chat(ground, "Still there?"))


@trial("chat", "the model's file vanishes while it is loaded")
def model_vanishes(ground: Ground, _: Random) -> str:
    ended = _chat_on_another_file(ground, ground.blob.unlink)
    assert "could not be downloaded" in ended.err or "cannot be" in ended.err
    _restore(ground)
    return ended.told


@trial("chat", "the model's file becomes another one while it is loaded")
def model_is_replaced(ground: Ground, chance: Random) -> str:
    other = ground.folder / "other"
    other.write_bytes(chance.randbytes(1 << 16))
    os.truncate(other, ground.model.stat().st_size)
    _chat_on_another_file(ground, lambda: other.replace(ground.blob))
    told = assert_clear(answer(ground, "--offline", "Hi"))
    _restore(ground)
    return told


@trial("chat", "the model's file is cut while it is loaded")
def model_is_cut(ground: Ground, _: Random) -> str:
    """The signal stands for a mapped page that is gone: no file is cut under llama.cpp."""
    own = ground.folder / "own.gguf"
    own.write_bytes(ground.model.read_bytes())
    with ground.started(*SHORT_CHAT, "--target", str(own)) as running:
        running.say("Name a river.")
        running.until_answers(1)
        (engine,) = running.children()
        os.kill(engine, signal.SIGBUS)
        running.say("Name another one.")
        running.until(lambda each: each.answers == 2 or b"restart" in each.err)
        ended = running.end()
    assert_told(ended)
    os.truncate(own, 1 << 20)
    told = assert_clear(answer(ground, "--target", str(own), "Hi"))
    assert_kept(ground, ["Name a river."])
    assert_fine(chat(ground, "Still there?"))
    return told
