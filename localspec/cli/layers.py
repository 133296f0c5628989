"""What `--gpu-layers` takes."""

import click


def layers(ctx: click.Context, param: click.Parameter, value: str) -> int | None:
    """Return the number of layers; None, for `auto`, leaves it to the program."""
    if value == "auto":
        return None
    if not value.isdecimal():
        raise click.BadParameter(f"{value!r} is neither a number of layers nor 'auto'", ctx, param)
    return int(value)
