"""Files that are damaged, foreign, or of a later version: measurements, hashes, states, settings, registry, databases."""

import shutil
import sqlite3
from pathlib import Path
from random import Random

from lab.faults.ground import ANSWER, Ended, Ground, answer, batch, chat
from lab.faults.soundness import assert_clear, assert_fine, assert_kept, assert_told, messages
from lab.faults.trial import Trial


def spoil(path: Path, chance: Random) -> None:
    """Make of a file what a fault may leave of it: nothing, noise, a part, a flipped byte, foreign JSON."""
    content = path.read_bytes()
    cut = chance.randrange(len(content) + 1)
    flipped = bytearray(content)
    if flipped:
        flipped[cut % len(flipped)] ^= 1 << chance.randrange(8)
    path.write_bytes(
        chance.choice(
            [
                b"",
                chance.randbytes(300),
                content[:cut],
                bytes(flipped),
                b'{"key": [1, 2]}',
                b"[" * 9000,
            ]
        )
    )


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


def hashes(ground: Ground, chance: Random) -> str:
    own = ground.folder / "own.gguf"
    shutil.copyfile(ground.model, own)
    copy = ("--target", str(own))
    assert_fine(batch(ground, *copy))
    spoil(ground.data / "hashes.json", chance)
    (ground.folder / "out.jsonl").unlink()
    assert_fine(batch(ground, *copy))
    return ""


def states(ground: Ground, chance: Random) -> str:
    assert_fine(chat(ground, "Before."))
    files = [each for each in (ground.data / "history" / "state").rglob("*") if each.is_file()]
    assert files, "a chat keeps what was evaluated"
    for each in files:
        spoil(each, chance)
    arguments = ("chat", "--plain", "--continue", *ANSWER, "--max-tokens", "8")
    assert_fine(ground.run(*arguments, said=b"After.\n"))
    assert_kept(ground, ["Before.", "After."])
    return ""


def settings(ground: Ground, chance: Random) -> str:
    file = ground.config / "config.toml"
    file.write_bytes(chance.choice([b"\xff\xfe", b"temperature = ", b'threads = "a"', b"[" * 9000]))
    told = assert_clear(answer(ground))
    assert str(file) in told
    assert assert_clear(chat(ground, "Hi"))
    file.unlink()
    assert_fine(answer(ground))
    return told


def registry(ground: Ground, chance: Random) -> str:
    file = ground.config / "models.toml"
    file.write_bytes(
        chance.choice([b"\xff\xfe", b"[models", b'[models."a"]\nfile = 1\n', b"[pairs.x]\n"])
    )
    told = assert_clear(answer(ground))
    assert str(file) in told
    file.unlink()
    assert_fine(answer(ground))
    return told


def preferences(ground: Ground, chance: Random) -> str:
    file = ground.config / "chat.toml"
    file.write_bytes(chance.choice([b"\xff\xfe", b"theme = ", b"[personas]\na = 1\n", b"[" * 9000]))
    ended = chat(ground, "Name a river.")
    told = assert_told(ended) if ended.code == 0 else assert_clear(ended)
    file.unlink()
    assert_fine(chat(ground, "Still there?"))
    return told if ended.code else ""


def history(ground: Ground, chance: Random) -> str:
    for n in range(3):
        assert_fine(chat(ground, f"Before {n}."))
    database = ground.data / "history" / "history.db"
    whole = database.read_bytes()
    noise = bytearray(whole)
    at = chance.choice([0, 100, 4096, len(whole) // 2])
    noise[at : at + 600] = chance.randbytes(600)
    database.write_bytes(noise[: len(whole)])
    left = database.read_bytes()
    ended = chat(ground, "One?", "Two?")
    assert ended.code == 0, ended.err
    assert_told(ended)
    told = [line for line in ended.err.splitlines() if "cannot be saved" in line]
    if ended.err.startswith(told[0] if told else "none"):
        # Seen when it was opened: the file is as it was, for whoever can mend it.
        assert database.read_bytes() == left
    database.unlink()
    for each in database.parent.glob("history.db-*"):
        each.unlink()
    database.write_bytes(whole)  # from the user's backup
    assert_fine(chat(ground, "After."))
    assert_kept(ground, ["Before 0.", "Before 1.", "Before 2.", "After."])
    return "".join(told[:1])


def later_history(ground: Ground, _: Random) -> str:
    assert_fine(chat(ground, "Before."))
    database = ground.data / "history" / "history.db"
    (version,) = _versioned(database, None)
    _versioned(database, version + 1)
    before = database.read_bytes()
    ended = chat(ground, "One?")
    assert_fine(ended)
    told = next(line for line in ended.err.splitlines() if "later localspec" in line)
    assert database.read_bytes() == before
    _versioned(database, version)
    assert_fine(chat(ground, "After."))
    assert_kept(ground, ["Before.", "After."])
    assert len(messages(ground)) == 4
    return told


def _versioned(database: Path, version: int | None) -> tuple[int]:
    connection = sqlite3.connect(database)
    if version is not None:
        connection.execute(f"PRAGMA user_version = {version}")
        connection.commit()
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return (int(found),)


def model_file(ground: Ground, chance: Random) -> str:
    own = ground.folder / "own.gguf"
    content = bytearray(ground.model.read_bytes()[: 4 << 20])
    for _ in range(chance.randint(1, 40)):
        content[chance.randrange(2000)] ^= 1 << chance.randrange(8)
    own.write_bytes(content)
    told = assert_clear(answer(ground, "--target", str(own), "Hi"))
    ended: Ended = ground.run("chat", "--plain", *ANSWER, "--target", str(own), said=b"Hi\n")
    assert_clear(ended)
    assert_fine(answer(ground))
    return told


TRIALS = [
    Trial("measurements are damaged", "run", measurements),
    Trial("kept hashes are damaged", "batch", hashes),
    Trial("the models' saved state is damaged", "chat", states, short=True),
    Trial("the user's settings are damaged", "run", settings),
    Trial("the user's registry is damaged", "run", registry),
    Trial("the chat's preferences are damaged", "chat", preferences),
    Trial("the history is damaged", "chat", history),
    Trial("the history is of a later version", "chat", later_history),
    Trial("the model's file is damaged", "run, chat", model_file),
]
