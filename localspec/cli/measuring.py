"""What `bench` and `ab` have in common: a measurement that Ctrl-C ends, and how its figures are printed."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click

from localspec.bench.loading import Watchers
from localspec.bench.trial import Trial
from localspec.cli import INTERRUPTED
from localspec.cli.bench_progress import BenchProgress
from localspec.cli.interrupt import cancel_on_interrupt, unwind_on_terminate
from localspec.cli.progress import ProgressLine
from localspec.decoding.cancel import CancelFlag
from localspec.errors import UsageError


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a measurement is given.

    Args:
        cancel: is set by Ctrl-C.
        watchers: show how far fetching and loading is.
        tell: is told of every run.
    """

    cancel: CancelFlag
    watchers: Watchers
    tell: Callable[[int, int, Trial], None]


@contextmanager
def measuring(*, quiet: bool) -> Iterator[Measurement]:
    """Show on stderr how far a measurement is, and let Ctrl-C end it."""
    cancel, progress = CancelFlag(), BenchProgress(enabled=not quiet)
    with (
        unwind_on_terminate(),
        ProgressLine(enabled=not quiet) as line,
        cancel_on_interrupt(cancel),
    ):
        try:
            watchers = Watchers(line.download, line.load, line.measure, progress.made)
            yield Measurement(cancel, watchers, progress.tell)
        finally:
            progress.end()


def printed(text: str, *, whole: bool) -> int:
    """Print what was found; return the exit code: of all that was planned, or of what there was when it was interrupted."""
    click.echo(text)
    sys.stdout.flush()
    return 0 if whole else INTERRUPTED


def exact_option() -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option that makes texts comparable."""
    return click.option(
        "--exact", is_flag=True, help="Load and draft so that no bit depends on drafting."
    )


def output_options(
    json_: str = "Print one JSON object.",
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return how figures are printed; the text is help."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        options = (
            click.option("--json", "json_", is_flag=True, help=json_),
            click.option("--quiet", is_flag=True, help="Print nothing on stderr but errors."),
            click.option("--debug", is_flag=True, help="Show a traceback when something fails."),
        )
        for option in reversed(options):  # click shows first what was added last
            command = option(command)
        return command

    return add


def asked_max_tokens(flags: Mapping[str, Any], usual: int) -> int:
    """Return how long an answer may be.

    Raises:
        UsageError: it would be empty.
    """
    max_tokens: int = usual if flags["max_tokens"] is None else flags["max_tokens"]
    if max_tokens < 1:
        raise UsageError(f"max_tokens is {max_tokens}: it must be 1 or more")
    return max_tokens
