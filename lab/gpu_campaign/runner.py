"""Runs a stage in a process of its own, for so long and no longer."""

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.gpu_campaign.results import CUT_SHORT, DONE, FAILED, Outcome
from lab.gpu_campaign.stages import Stage
from localspec.display import printable

ROOT = Path(__file__).parents[2]
_GRACE_S = 20.0
_COMPLAINT_CHARS = 400


def run(stage: Stage, limit_s: float, environment: Mapping[str, str]) -> Outcome:
    """Run a stage; what has not ended in time is interrupted, and says what it has.

    Args:
        stage: to be run.
        limit_s: seconds.
        environment: what its process finds beside this one's.
    """
    start = time.monotonic()
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            stage.command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            cwd=ROOT,
            env={**os.environ, **environment, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )
        in_time = _ended(process, limit_s)
        output.seek(0)
        errors.seek(0)
        said, complaint = output.read(), errors.read()
    found = documents(said, stage.told_by)
    status = FAILED if not found else CUT_SHORT if not in_time else DONE
    if process.returncode != 0 and in_time:  # what it found before stays
        status = FAILED
    if process.returncode < 0 and in_time:
        complaint += f"\nended by {signal.Signals(-process.returncode).name}"
    last = "" if status == DONE else _last_line(complaint) or _last_line("" if found else said)
    if not found and not in_time:
        last = f"nothing to tell within {limit_s:.0f} s; its last word: {last or 'none'}"
    seconds = round(time.monotonic() - start, 1)
    return Outcome(stage.kind, stage.subject, status, seconds, found, last)


def _last_line(said: str) -> str:
    lines = said.strip().splitlines()
    return printable(lines[-1])[:_COMPLAINT_CHARS] if lines else ""


def documents(said: str, told_by: Sequence[str] = ()) -> Sequence[Mapping[str, Any]]:
    """Return the JSON objects that a program printed: one or a list of them, or one a line among other lines.

    Args:
        said: all that it printed.
        told_by: fields; of objects that are alike in them the last one counts, as it was told with more.
    """
    try:
        whole = json.loads(said)
    except ValueError:
        whole = [each for line in said.splitlines() if (each := _document(line)) is not None]
    listed = whole if isinstance(whole, list) else [whole]
    found = [each for each in listed if isinstance(each, dict)]
    return list({tuple(each.get(field) for field in told_by): each for each in found}.values())


def _document(line: str) -> object:
    try:
        return json.loads(line) if line.startswith("{") else None
    except ValueError:
        return None


def _ended(process: "subprocess.Popen[bytes]", limit_s: float) -> bool:
    """Wait for a process; say whether it ended by itself. It is told to end, and then made to, with all of its own."""
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return False
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    return True
