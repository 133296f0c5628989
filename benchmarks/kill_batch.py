"""Kills a batch twenty times at random moments and resumes it: what it held, beside a run that nobody disturbed.

Half of the lines are answered greedily, half at temperature 0.8, all of them with `--exact`. Runs SmolLM2 on one
thread; with --parallel, what is killed answers several lines at a time, and the undisturbed run one. --tear also cuts the
last record behind every second kill. From the root of a checkout:
`python -m benchmarks.kill_batch [--kills 20] [--lines 200] [--max-tokens 24] [--parallel 4] [--tear]`.
"""

import argparse
import tempfile
import time
from pathlib import Path

from tests.cli.batch_kills import answers, kill_until_done, write_prompts
from tests.cli.command import PLAIN, localspec

_PATIENCE_S = 3600


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
        run = localspec("batch", *to, timeout_s=_PATIENCE_S)
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
