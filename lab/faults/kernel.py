"""Memory that runs out as it does on a small machine: the kernel ends a process without a word of its own.

Usually it does not come to that, since what does not fit is refused before it is loaded. `--no-fit` loads it all the same.
"""

import signal
from random import Random

from lab.faults.ground import ANSWER, Ended, Ground, answer, batch, chat
from lab.faults.limits import Limits
from lab.faults.memory_group import killed_by_kernel, memory_group
from lab.faults.shortages import assert_one_complaint
from lab.faults.soundness import assert_fine, assert_kept, assert_told, messages, records
from lab.faults.trial import Trial

_LINES = [f"line-{n}" for n in range(6)]


def _beyond(chance: Random) -> tuple[str, ...]:
    """Return, mostly, the option that loads what does not fit."""
    return ("--no-fit",) if chance.random() < 0.8 else ()


def _silently(ended: Ended, killed: int) -> str:
    """See that it ended well, with a complaint, or by the kernel's hand; return what was said."""
    if ended.code == 0:
        return ""
    if ended.code != -signal.SIGKILL:
        return assert_one_complaint(ended)
    assert killed, "nobody else kills"
    assert_told(ended)
    return "(SIGKILL by the kernel, which leaves nobody to say why; the shell says Killed)"


def run_beyond_its_group(ground: Ground, chance: Random) -> str:
    with memory_group(chance.randint(40, 160) << 20) as group:
        ended = answer(ground, *_beyond(chance), "Hi", limits=Limits(group=str(group)))
        told = _silently(ended, killed_by_kernel(group))
    assert_fine(answer(ground))
    return told


def batch_beyond_its_group(ground: Ground, chance: Random) -> str:
    with memory_group(chance.randint(40, 160) << 20) as group:
        ended = batch(ground, *_beyond(chance), limits=Limits(group=str(group)))
        told = _silently(ended, killed_by_kernel(group))
    before = records(ground.folder / "out.jsonl", torn=True)
    assert_fine(batch(ground))
    assert records(ground.folder / "out.jsonl") == _LINES
    assert before == _LINES[: len(before)]
    return told


def engine_beyond_its_group(ground: Ground, chance: Random) -> str:
    """The chat and its engine share a group; the kernel takes the larger one, and the chat goes on."""
    assert_fine(chat(ground, "Before."))
    with memory_group(chance.randint(80, 150) << 20) as group:
        arguments = ("chat", "--plain", *ANSWER, "--no-fit", "--max-tokens", "8")
        with ground.started(*arguments, limits=Limits(group=str(group))) as running:
            running.say("One?")
            running.until(lambda each: b"/restart" in each.err or each.answers == 1)
            survived = running.answers == 1
            if not survived:
                assert killed_by_kernel(group) == 1
                assert b"most likely because memory ran out" in running.err
                # The user closes something else, and there is room again.
                for name in ("memory.memsw.limit_in_bytes", "memory.limit_in_bytes", "memory.max"):
                    if (group / name).exists():
                        (group / name).write_text(str(2 << 30))
                running.say("/restart")
                running.say("Two?")
                running.until_answers(1)
            ended = running.end()
    told = assert_told(ended)
    assert_kept(ground, ["Before.", "One?" if survived else "Two?"])
    assert ("user", "One?", "complete") in messages(ground), "what was asked is kept"
    assert_fine(chat(ground, "After."))
    assert_kept(ground, ["After."])
    said = [line for line in ended.err.splitlines() if "/restart" in line]
    return "".join(said[:1]) if said else told if "saved" in told else ""


TRIALS = [
    Trial("a memory cgroup of 40 to 160 MB", "run", run_beyond_its_group),
    Trial("a memory cgroup of 80 to 150 MB", "chat", engine_beyond_its_group, short=True),
    Trial("a memory cgroup of 40 to 160 MB", "batch", batch_beyond_its_group),
]
