"""Outcome: a stage is run in a process of its own, for so long and no longer; outcomes are kept as JSON, and as a page in Markdown."""

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lab.gpu_campaign.stages import Stage
from localspec.display import printable
from localspec.errors import LocalspecError
from localspec.storage.files import write_atomic
from localspec.storage.paths import shown

DONE, FAILED, CUT_SHORT = "done", "failed", "cut short"
_ROOT = Path(__file__).parents[2]
_GRACE_S = 20.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one stage.

    Args:
        status: `done`, `cut short` where its time was over and it had printed something, or `failed`.
        seconds: that it took.
        found: what it printed as JSON, one object or several.
        complaint: its last line where it is not done.
    """

    status: str
    seconds: float
    found: Sequence[Mapping[str, Any]] = ()
    complaint: str = ""


def read(path: Path) -> dict[str, Outcome]:
    """Return outcomes by the names of stages; none if there is no file.

    Raises:
        LocalspecError: the file is there, and holds something else.
    """
    if not path.exists():
        return {}
    try:
        return {name: Outcome(**each) for name, each in json.loads(path.read_text()).items()}
    except (ValueError, TypeError, AttributeError):
        raise LocalspecError(
            f"{shown(path)} is no campaign's: give another --out, or remove it"
        ) from None


def write(path: Path, outcomes: Mapping[str, Outcome]) -> None:
    """Write outcomes, and the page beside them."""
    document = {name: asdict(each) for name, each in outcomes.items()}
    write_atomic(path, (json.dumps(document, indent=1) + "\n").encode())
    write_atomic(path.with_suffix(".md"), page(outcomes).encode())


def page(outcomes: Mapping[str, Outcome]) -> str:
    """Return the page: a section for each stage, with all that it printed."""
    lines = ["# GPU campaign", ""]
    for name, each in outcomes.items():
        status = "" if each.status == DONE else f", {each.status}: {_cell(each.complaint)}"
        lines += [f"## {name}", "", f"{each.seconds:.0f} s{status}", ""]
        found = each.found[0] if len(each.found) == 1 else list(each.found)
        lines += [*_section(found), ""]
    spent = sum(each.seconds for each in outcomes.values())
    failed = sum(each.status == FAILED for each in outcomes.values())
    lines.append(f"{len(outcomes)} stages, {spent / 60:.1f} minutes, {failed} failed.")
    return "\n".join(lines) + "\n"


def _section(value: object) -> Iterator[str]:
    """Yield tables of lists and dicts of objects, and a line for each other field."""
    if isinstance(value, dict) and value and all(isinstance(each, dict) for each in value.values()):
        value = [{"": name, **each} for name, each in value.items()]
    if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
        heads = list(dict.fromkeys(name for each in value for name in each))
        yield f"| {' | '.join(heads)} |"
        yield "|---" * len(heads) + "|"
        for each in value:
            yield f"| {' | '.join(_cell(each.get(name, '')) for name in heads)} |"
    elif isinstance(value, dict):
        for name, each in value.items():
            if isinstance(each, dict | list) and each and not _is_flat(each):
                yield from ("", f"{name}:", "", *_section(each), "")
            else:
                yield f"- {name}: {_cell(each)}"
    elif value:
        yield _cell(value)


def _is_flat(value: dict[str, object] | list[object]) -> bool:
    its = value.values() if isinstance(value, dict) else value
    return not any(isinstance(each, dict) for each in its)


def _cell(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return " ".join(text.split()).replace("|", "/")


def run(stage: Stage, limit_s: float, environment: Mapping[str, str]) -> Outcome:
    """Run a stage; one that has not ended in time is interrupted, and keeps what it has printed.

    Args:
        stage: to be run.
        limit_s: seconds.
        environment: of its process, beside this one's.
    """
    start = time.monotonic()
    searched = os.pathsep.join(
        each for each in (str(_ROOT), os.environ.get("PYTHONPATH", "")) if each
    )
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            stage.command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            cwd=_ROOT,
            env={**os.environ, **environment, "PYTHONPATH": searched},
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
