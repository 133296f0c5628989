"""`localspec ps` and `localspec stop`: the servers that run, and how to end one."""

import os
import signal
import time
from typing import TYPE_CHECKING

import click

from localspec.display import notice, table
from localspec.errors import LocalspecError, UsageError

if TYPE_CHECKING:
    from localspec.serve.running import Running

_PATIENCE_S = 30.0
_LOOK_S = 0.05


@click.command()
def ps() -> int:
    """List running servers: process, start time, model and address."""
    from localspec.serve.running import servers  # noqa: PLC0415

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


def _chosen(name: str | None, *, every: bool) -> "list[Running]":
    from localspec.serve.running import servers  # noqa: PLC0415

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


def _stop(running: "Running") -> None:
    """End a server, and wait until it is gone."""
    from localspec.serve.running import runs  # noqa: PLC0415

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
