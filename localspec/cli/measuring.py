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
from localspec.cli.option_flags import reply_options
from localspec.cli.progress import ProgressLine
from localspec.decoding.cancel import CancelFlag
from localspec.options import ReplyOptions


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


def output_options(
    json_: str = "Print one JSON object.",
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return how figures are printed; the text is help."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        options = (
            click.option("--json", "json_", is_flag=True, help=json_),
            click.option("-q", "--quiet", is_flag=True, help="Print only errors on stderr."),
        )
        for option in reversed(options):  # click shows first what was added last
            command = option(command)
        return command

    return add


def measured_reply(flags: Mapping[str, Any], max_tokens: int) -> ReplyOptions:
    """Return how every answer is made: with a seed that is always the same, and up to `max_tokens`, unless flags say more.

    Raises:
        UsageError: a flag is out of its range.
    """
    usual = {"max_tokens": max_tokens, "seed": 1}
    left = {name: value for name, value in usual.items() if flags[name] is None}
    return reply_options({**flags, **left})
