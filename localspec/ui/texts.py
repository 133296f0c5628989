"""The longer texts of the screens: the help, and an answer under the token lens."""

from collections.abc import Mapping, Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text
from textual.content import Content
from textual.theme import Theme

from localspec.chat.events import RoundDone
from localspec.ui.colours import tint_of
from localspec.ui.commands import Command
from localspec.ui.keys import key_list
from localspec.ui.lens import Mark, counts, pieces


def help_text(keys: Mapping[str, str], commands: Sequence[Command]) -> Group:
    """Return lists of keys and commands.

    Args:
        keys: the user's own keys, by name.
        commands: all of them.
    """
    by_key = Table.grid("keys", "text", "name", padding=(0, 2, 0, 0))
    for key, about, name in key_list(keys):
        by_key.add_row(Text(key, "bold"), about, Text(name, "dim"))
    by_name = Table.grid("name", "text", padding=(0, 2, 0, 0))
    for command in commands:
        shown = Text.assemble((f"/{command.name}", "bold"), f" {command.usage}")
        by_name.add_row(shown, command.about)
    told = 'Each key, what it does, and its name for [keys] in chat.toml, as in stats = "ctrl+s". A name with a slash is also a command.\n'
    way = "\nShift+Tab moves to the messages, Esc back to the input line.\n\nCommands\n"
    return Group(Text(told), by_key, way, by_name)


def lens_text(happened: Sequence[RoundDone], theme: Theme | None) -> Content:
    """Return an answer whose tokens show where they come from.

    Args:
        happened: its rounds.
        theme: whose colours show it; None for marks instead.
    """
    return Content("").join(_shown(text, mark, theme) for text, mark in pieces(happened))


def lens_legend(happened: Sequence[RoundDone], theme: Theme | None) -> Content:
    """Return what the colours mean, or the marks, and how many tokens come from there; a line each."""
    return Content("\n").join(
        Content.assemble(_shown("text", mark, theme), f"  {count:>4}  {mark.meaning}")
        for mark, count in counts(happened)
    )


def _shown(text: str, mark: Mark, theme: Theme | None) -> Content:
    if theme is None:
        return Content.assemble((mark.open, "dim"), text, (mark.close, "dim"))
    return Content.styled(text, tint_of(mark.colour, theme) if mark.colour else "")
