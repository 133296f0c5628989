"""A batch that is killed at random moments, each time taken up again, until one run comes through."""

import json
import os
import random
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.command import PLAIN, localspec, started

_PATIENCE_S = 400.0  # other programs may have the machine


@dataclass(frozen=True, slots=True)
class Killed:
    """How often it was killed while it ran, how often in the middle of a record, and how often it was quiet yet."""

    kills: int
    torn: int
    before_any: int


def write_prompts(path: Path, n_lines: int) -> None:
    """Write lines that are answered greedily and at temperature 0.8 in turn."""
    lines = [
        {
            "id": f"line-{number}",
            "prompt": f"Write a short story about the number {number * 37 % 101}.",
            "temperature": 0.8 if number % 2 else 0.0,
        }
        for number in range(n_lines)
    ]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def kill_until_done(
    arguments: list[str], output: Path, kills: int, n_lines: int, *, tearing: bool = False
) -> Killed:
    """Start a batch and kill it, `kills` times, then let it finish.

    Args:
        arguments: of the command, `--resume` among them.
        output: its file; looked at only to choose moments in which it runs.
        kills: SIGKILLs that hit a live process.
        n_lines: of the input.
        tearing: cut the last record behind every second kill, as a power cut may: a kill alone does not, for
            what is written at once and is less than a page is written whole.
    """
    moments = random.Random(kills)
    torn = before_any = 0
    for kill in range(kills):
        left = n_lines - _n_records(output)
        more = moments.randint(0, 2 * left // (kills - kill + 2))
        with started("batch", *PLAIN, "--quiet", *arguments) as process:
            begun = _n_records(output)
            _wait(process, output, begun + more)
            # Without a record to wait for, it is killed while it starts.
            time.sleep(moments.uniform(0.0, 0.2 if more else 2.0))
            assert process.poll() is None, "it was done before it was killed"
            process.kill()
            process.communicate()
        content = output.read_bytes() if output.exists() else b""
        if tearing and kill % 2 and content.endswith(b"\n"):
            last = len(content) - content.rfind(b"\n", 0, -1) - 1
            os.truncate(output, len(content) - moments.randint(1, last - 1))
            content = output.read_bytes()
        torn += content != b"" and not content.endswith(b"\n")
        before_any += _n_records(output) == begun
    done = localspec("batch", *PLAIN, "--quiet", *arguments, timeout_s=_PATIENCE_S)
    assert (done.code, done.err) == (0, "")
    return Killed(kills, torn, before_any)


def answers(output: Path) -> list[dict[str, Any]]:
    """Return the records of an output, each line of it a whole one, without what a clock had a part in."""
    content = output.read_text()
    assert content.endswith("\n")
    records = [json.loads(line) for line in content.split("\n")[:-1]]
    return [
        {name: each[name] for name in each if name not in {"timings", "speculation"}}
        for each in records
    ]


def _n_records(output: Path) -> int:
    return output.read_bytes().count(b"\n") if output.exists() else 0


def _wait(process: "subprocess.Popen[bytes]", output: Path, wanted: int) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while _n_records(output) < wanted and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
