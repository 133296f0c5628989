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

_ROOT = Path(__file__).parents[2]
_GRACE_S = 20.0


def run(stage: Stage, limit_s: float, environment: Mapping[str, str]) -> Outcome:
    """Run a stage; one that has not ended in time is interrupted, and keeps what it has printed.

    Args:
        stage: to be run.
        limit_s: seconds.
        environment: of its process, beside this one's.
    """
    start = time.monotonic()
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            stage.command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            cwd=_ROOT,
            env={**os.environ, **environment, "PYTHONPATH": str(_ROOT)},
            start_new_session=True,
        )
        in_time = True
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            in_time = False
            process.send_signal(signal.SIGINT)
            try:
                process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                _kill(process)
        except BaseException:
            _kill(process)
            raise
        output.seek(0)
        errors.seek(0)
        printed, complaint = output.read(), errors.read().strip()
    found = documents(printed, stage.told_by)
    if in_time and process.returncode < 0:
        complaint += f"\nended by {signal.Signals(-process.returncode).name}"
    seconds = round(time.monotonic() - start, 1)
    if in_time and process.returncode == 0 and found:
        return Outcome(DONE, seconds, found)
    status = CUT_SHORT if found and not in_time else FAILED
    last = printable((complaint or "nothing printed").splitlines()[-1])[:400]
    return Outcome(status, seconds, found, last)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def documents(printed: str, told_by: Sequence[str] = ()) -> list[Mapping[str, Any]]:
    """Return the JSON objects that a program printed: one or a list of them, or one a line among other lines.

    Args:
        printed: all of its output.
        told_by: fields; of objects that are alike in them the last one counts, as it holds more.
    """
    try:
        whole = json.loads(printed)
    except ValueError:
        whole = [each for line in printed.splitlines() if (each := _document(line)) is not None]
    listed = whole if isinstance(whole, list) else [whole]
    found = [each for each in listed if isinstance(each, dict)]
    return list({tuple(each.get(field) for field in told_by): each for each in found}.values())


def _document(line: str) -> object:
    try:
        return json.loads(line) if line.startswith("{") else None
    except ValueError:
        return None
