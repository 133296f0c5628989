"""The command palette: every slash command, to be found by what it does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from textual.app import SystemCommand

from localspec.ui.commands import COMMANDS

if TYPE_CHECKING:
    from localspec.ui.app import ChatApp


def palette(app: ChatApp) -> Iterator[SystemCommand]:
    """Yield the commands; one that needs more than its name is put into the composer."""
    for each in COMMANDS:
        needs_more = bool(each.usage) and not each.usage.startswith("[")

        async def call(name: str = each.name, fill: bool = needs_more) -> None:
            if fill:
                app.view.entry.composer.fill(f"/{name} ")
            else:
                await app.action_command(name)

        yield SystemCommand(f"/{each.name}", each.summary, call)
