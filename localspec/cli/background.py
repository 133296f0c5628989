"""`localspec serve --background`: starts the same command in a session of its own, and returns once it is ready."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click

from localspec.display import notice
from localspec.serve.running import clear_logs, directory, runs

_LOOK_S = 0.1
_TAIL_BYTES = 4000


def start_in_background(arguments: Sequence[str]) -> int:
    """Start `localspec` with these arguments; return 0 once it serves, else the code that it ended with."""
    clear_logs()
    descriptor, name = tempfile.mkstemp(dir=directory())
    with os.fdopen(descriptor, "wb") as log:
        process = subprocess.Popen(  # noqa: S603 - this program, with what it was given
            [sys.executable, "-P", "-m", "localspec", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    path = Path(name).rename(directory() / f"{process.pid}.log")
    try:
        while (running := runs(process.pid)) is None:
            if process.poll() is not None:
                click.echo(_last_line(path), err=True)
                path.unlink(missing_ok=True)
                return process.returncode
            time.sleep(_LOOK_S)
    except KeyboardInterrupt:
        process.terminate()
        raise
    where = " and ".join(running.addresses)
    notice(
        f"serving {running.model} at {where}; `localspec stop {process.pid}` ends it; log: {path}"
    )
    return 0


def _last_line(path: Path) -> str:
    lines = path.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "localspec: the server ended without a word"
