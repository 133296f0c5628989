"""A batch that is killed at random moments and resumed each time, until one run comes through.

From the root of a checkout:

    python -m lab.kills.batch [--kills 20] [--lines 200] [--max-tokens 24] [--parallel 4] [--tear]

compares the records with those of a run that nobody disturbed. Half of the lines are answered
greedily, half at temperature 0.8, all of them with `--exact`, by SmolLM2 on one thread. With
--parallel, the run that is killed answers several lines at a time, and the undisturbed one does
not. --tear also cuts the last record after every second kill.
"""

import argparse
import json
import os
import random
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.command import PLAIN, localspec, started

_PATIENCE_S, _WHOLE_PATIENCE_S = 400.0, 3600.0  # other programs may have the machine


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
    """Start a batch and kill it, `kills` times or until it was done before, then let it finish.

    Args:
        arguments: of the command, `--resume` among them.
        output: its file; looked at only to choose moments in which it runs.
        kills: SIGKILLs that hit a live process.
        n_lines: of the input.
        tearing: cut the last record behind every second kill, as a power cut may: a kill alone does not, for
            what is written at once and is less than a page is written whole.
    """
    moments = random.Random(kills)
    hits = torn = before_any = 0
    for kill in range(kills):
        left = n_lines - _n_records(output)
        more = moments.randint(0, 2 * left // (kills - kill + 2))
        with started("batch", *PLAIN, "--quiet", *arguments) as process:
            begun = _n_records(output)
            _wait(process, output, begun + more)
            # Without a record to wait for, it is killed while it starts.
            time.sleep(moments.uniform(0.0, 0.2 if more else 2.0))
            quicker = process.poll() is not None
            process.kill()
            process.communicate()
        if quicker:  # than the moment that was drawn
            break
        hits += 1
        content = output.read_bytes() if output.exists() else b""
        if tearing and kill % 2 and content.endswith(b"\n"):
            last = len(content) - content.rfind(b"\n", 0, -1) - 1
            os.truncate(output, len(content) - moments.randint(1, last - 1))
            content = output.read_bytes()
        torn += content != b"" and not content.endswith(b"\n")
        before_any += _n_records(output) == begun
    done = localspec("batch", *PLAIN, "--quiet", *arguments, timeout_s=_PATIENCE_S)
    assert (done.code, done.err) == (0, "")
    return Killed(hits, torn, before_any)


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


def main() -> None:
    """Run, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--lines", type=int, default=200)
    parser.add_argument("--max-tokens", type=int, default=24)
    parser.add_argument("--draft", default="lookup")
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--tear", action="store_true")
    asked = parser.parse_args()
    options = ["--exact", "--seed", "1", "--max-tokens", str(asked.max_tokens)]
    options += ["--draft", asked.draft]
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "in.jsonl")
        whole, output = Path(folder, "whole.jsonl"), Path(folder, "out.jsonl")
        write_prompts(source, asked.lines)
        to = [str(source), "-o", str(whole), *PLAIN, *options]
        run = localspec("batch", *to, timeout_s=_WHOLE_PATIENCE_S)
        assert run.code == 0, run.err
        arguments = [str(source), "-o", str(output), "--resume", *options]
        arguments += ["--parallel", str(asked.parallel)]
        killed = kill_until_done(arguments, output, asked.kills, asked.lines, tearing=asked.tear)
        found, undisturbed = answers(output), answers(whole)
    once = [each["id"] for each in found] == [f"line-{number}" for number in range(asked.lines)]
    equal = sum(a == b for a, b in zip(found, undisturbed, strict=True))
    sampled = sum(a == b for a, b in list(zip(found, undisturbed, strict=True))[1::2])
    print(
        f"{asked.max_tokens} tokens, {asked.parallel} at a time: {killed.kills} kills ({killed.before_any} before a record of the run was out, {killed.torn} in the middle "
        f"of one); every id once and in order: {once}; records equal to those of an undisturbed run: {equal} of "
        f"{asked.lines}, of those at temperature 0.8: {sampled} of {asked.lines // 2}; "
        f"{time.monotonic() - start:.0f} s"
    )


if __name__ == "__main__":
    main()
