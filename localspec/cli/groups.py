"""Groups of commands: a few may be called by the names that other programs have for them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import click

from localspec.errors import did_you_mean


class CommandGroup(click.Group):
    """A group of commands.

    Args:
        also: further names of commands, by those names.
        given: what click's own takes.
    """

    def __init__(
        self, *args: Any, also: Mapping[str, str] = MappingProxyType({}), **given: Any
    ) -> None:
        super().__init__(*args, **given)
        self._also = also

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a name, or None if there is no such command."""
        return super().get_command(ctx, self._also.get(cmd_name, cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that a command line begins with.

        Raises:
            UsageError: there is no such command; the message has similar ones, or all.
        """
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            names = self.list_commands(ctx)
            hint = did_you_mean(name, names) or f"choose one of {', '.join(names)}"
            ctx.fail(f"there is no command {ctx.info_name} {name[:40]!r}: {hint}")
        return super().resolve_command(ctx, args)
