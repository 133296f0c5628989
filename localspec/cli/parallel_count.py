"""What `--parallel` takes."""

import click

MOST = 64


def parallel_count(ctx: click.Context, param: click.Parameter, value: str) -> int | None:
    """Return the number of lines at a time; None, for `auto`, leaves it to the program."""
    if value == "auto":
        return None
    if not value.isdecimal() or not 1 <= int(value) <= MOST:
        raise click.BadParameter(
            f"{value!r} is neither a number from 1 to {MOST} nor 'auto'", ctx, param
        )
    return int(value)
