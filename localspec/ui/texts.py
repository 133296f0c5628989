"""The longer texts of the screens, as Rich lays them out: the help, and an answer under the token lens."""

from collections.abc import Mapping, Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from localspec.chat.events import RoundDone
from localspec.ui.commands import Command
from localspec.ui.keys import key_list
from localspec.ui.lens import legend, runs


def help_text(keys: Mapping[str, str], commands: Sequence[Command]) -> Group:
    """Return lists of keys and commands.

    Args:
        keys: the user's own keys, by name.
        commands: all of them.
    """
    by_key = Table.grid("keys", "text", "name", padding=(0, 2, 0, 0))
    for each in key_list(keys):
        by_key.add_row(*each)
    by_name = Table.grid("name", "text", padding=(0, 2, 0, 0))
    for command in commands:
        by_name.add_row(Text(f"/{command.name} {command.usage}"), command.about)
    told = "\nKeys; the word behind each is its name under \\[keys] in chat.toml.\n"
    way = "\nShift+Tab goes from the composer to the messages, Esc back.\n\nCommands\n"
    return Group(told, by_key, way, by_name)


def lens_text(happened: Sequence[RoundDone]) -> Text:
    """Return an answer whose tokens have marks and styles of their origins, and what these mean."""
    body = Text()
    for run in runs(happened):
        body.append(run.mark.open, "dim")
        body.append(run.text, run.mark.style)
        body.append(run.mark.close, "dim")
    body.append("\n\n" + "\n".join(legend(happened)))
    return body
