"""`localspec ps`, `stop` and `serve --background`: the servers that run, how to end one, and how one is started that stays."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click

from localspec.display import notice, table
from localspec.errors import LocalspecError, UsageError
from localspec.serve.running import Running, clear_logs, directory, runs, servers

_PATIENCE_S = 30.0
_LOOK_S = 0.05


@click.command()
def ps() -> int:
    """List running servers: process, start time, model and address."""
    rows = [("PID", "SINCE", "MODEL", "ADDRESS")]
    for each in servers():
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(each.since))
        rows.append((str(each.pid), since, each.model, " ".join(each.addresses)))
    if len(rows) == 1:
        click.echo("no server is running: start one with `localspec serve MODEL`", err=True)
        return 0
    for line in table(rows):
        click.echo(line)
    return 0


@click.command()
@click.argument("name", metavar="[MODEL|PID]", required=False)
@click.option("--all", "every", is_flag=True, help="Stop all of them.")
def stop(name: str | None, every: bool) -> int:
    """Stop the running server, or the one that serves MODEL, or process PID."""
    for each in _chosen(name, every=every):
        _stop(each)
        notice(f"{each.model} is stopped")
    return 0


def _chosen(name: str | None, *, every: bool) -> list[Running]:
    found = servers()
    if name is not None:
        found = [each for each in found if name in {each.model, str(each.pid)}]
        if not found:
            raise LocalspecError(f"no server of {name} is running: see `localspec ps`")
    elif not found:
        raise LocalspecError("no server is running")
    if len(found) > 1 and not every:
        raise UsageError(
            f"{len(found)} servers run: name one by its process, see `localspec ps`, or give --all"
        )
    return found


def _stop(running: Running) -> None:
    """End a server, and wait until it is gone."""
    try:
        os.kill(running.pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    except PermissionError:
        raise LocalspecError(
            f"server {running.pid} is of another user: it cannot be stopped"
        ) from None
    end_s = time.monotonic() + _PATIENCE_S
    while runs(running.pid) is not None:
        if time.monotonic() > end_s:
            raise LocalspecError(
                f"server {running.pid} does not end: end it with `kill -9 {running.pid}`"
            )
        time.sleep(_LOOK_S)


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
