"""Model files that go, or become others, while they are loaded."""

import os
from random import Random

from lab.faults.ground import ANSWER, Ground, answer, chat
from lab.faults.soundness import (
    assert_clear,
    assert_fine,
    assert_kept,
    assert_told,
)
from lab.faults.trial import Trial

_LONG = ("chat", "--plain", *ANSWER, "--max-tokens", "8")


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


def model_vanishes(ground: Ground, _: Random) -> str:
    with ground.started(*_LONG) as running:
        running.say("Name a river.")
        running.until_answers(1)
        ground.blob.unlink()
        running.say("Name another one.")
        running.until_answers(2)  # what is loaded stays loaded
        running.say("/restart")
        running.say("And another one.")
        ended = running.end()
    told = assert_told(ended)
    assert_kept(ground, ["Name a river.", "Name another one."])
    assert "could not be downloaded" in ended.err or "cannot be" in ended.err
    ground.blob.symlink_to(ground.model.resolve())
    assert_fine(chat(ground, "Still there?"))
    return told


def model_is_replaced(ground: Ground, chance: Random) -> str:
    with ground.started(*_LONG) as running:
        running.say("Name a river.")
        running.until_answers(1)
        size = ground.model.stat().st_size
        other = ground.folder / "other"
        with other.open("wb") as file:
            file.write(chance.randbytes(1 << 16))
            file.truncate(size)
        other.replace(ground.blob)
        running.say("Name another one.")
        running.until_answers(2)
        running.say("/restart")
        running.say("And another one.")
        ended = running.end()
    assert_kept(ground, ["Name a river.", "Name another one."])
    assert_told(ended)
    told = assert_clear(answer(ground, "--offline", "Hi"))
    ground.blob.unlink()
    ground.blob.symlink_to(ground.model.resolve())
    assert_fine(chat(ground, "Still there?"))
    return told


def model_is_cut(ground: Ground, _: Random) -> str:
    """With kernels that use a file's pages as they are mapped, cutting it takes them away."""
    own = ground.folder / "own.gguf"
    own.write_bytes(ground.model.read_bytes())
    arguments = ("chat", "--plain", *ANSWER, "--max-tokens", "8", "--target", str(own))
    with ground.started(*arguments) as running:
        running.say("Name a river.")
        running.until_answers(1)
        os.truncate(own, 1 << 20)
        running.say("Name another one.")
        running.until(lambda each: each.answers == 2 or b"restart" in each.err)
        ended = running.end()
    assert_told(ended)
    told = assert_clear(answer(ground, "--target", str(own), "Hi"))
    assert_kept(ground, ["Name a river."])
    assert_fine(chat(ground, "Still there?"))
    return told


TRIALS = [
    Trial("`rm` beside it", "run", rm_beside_run),
    Trial("the model's file vanishes while it is loaded", "chat", model_vanishes),
    Trial("the model's file becomes another one while it is loaded", "chat", model_is_replaced),
    Trial("the model's file is cut while it is loaded", "chat", model_is_cut),
]
