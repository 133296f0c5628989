"""Recording for the verbs that answer: replies go to the telemetry while they run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from localspec.display import notice
from localspec.options.recording import WORKLOADS

if TYPE_CHECKING:
    from localspec.launch.observe import Telemetry


@contextmanager
def recorded(telemetry: "Telemetry", *, quiet: bool) -> Iterator[None]:
    """Write what is left at the end; what is wrong with recording is mentioned once."""
    try:
        yield
    finally:
        telemetry.close()
        if telemetry.trouble is not None and not quiet:
            notice(telemetry.trouble)


def workload_option() -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option that says what kind of text it is."""
    return click.option(
        "--workload",
        type=click.Choice(list(WORKLOADS)),
        metavar="KIND",
        help=f"Kind of text, for `stats`: {', '.join(WORKLOADS)}. Default: guessed. "
        "Loads the model here: a running server records for all that it answers.",
    )
