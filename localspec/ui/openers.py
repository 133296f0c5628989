"""Opens the screens: models, history, settings, stats, lens, race, help."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from localspec.errors import LocalspecError, UsageError
from localspec.ui import settings
from localspec.ui.commands import COMMANDS
from localspec.ui.export import write_export
from localspec.ui.history_sheet import HistorySheet
from localspec.ui.keys import key_list
from localspec.ui.lens import legend, runs
from localspec.ui.race_sheet import RaceSheet
from localspec.ui.sheets import LineSheet, ListSheet, Row, TextSheet

if TYPE_CHECKING:
    from localspec.ui.app import ChatApp


async def model(app: ChatApp, argument: str, *, first: bool = False) -> None:
    """Switch the pair, or let the user choose one."""
    loaded = app.session.models.name

    async def choose(name: str | None) -> None:
        if name and name == app.session.models.next_name:
            app.view.tell(f"{name} is loaded already")
        elif name:
            try:
                app.session.load(name)
            except LocalspecError as error:
                app.view.tell(str(error))

    # Imported late: reading models' headers needs numpy, and the first frame does not.
    from localspec.ui.picker import Picker  # noqa: PLC0415

    if argument:
        await choose(argument)
    else:
        offline = app.session.models.usual.offline
        app.push_screen(Picker(loaded, first=first, offline=offline), choose)


async def history(app: ChatApp, argument: str) -> None:
    """Show earlier conversations."""
    talk = app.session.talk

    def export(conversation: int) -> None:
        try:
            app.view.tell(
                f"written to {write_export(talk.history, conversation, '', app.session.folder)}"
            )
        except LocalspecError as error:
            app.view.tell(str(error))

    def deleted(conversation: int) -> None:
        if conversation == talk.conversation:
            app.session.forget()

    async def take_up(conversation: str | None) -> None:
        if conversation:
            app.session.open(int(conversation))
        await app.view.show_messages()

    app.push_screen(HistorySheet(talk.history, argument, export, deleted), take_up)


async def settings_sheet(app: ChatApp, argument: str) -> None:
    """Change a setting, or show them all to be changed."""
    session = app.session
    if argument:
        name, _, value = argument.partition(" ")
        session.set(name, value.strip())
        app.view.tell(f"{name} is {value.strip()} now")
        return

    def changed(name: str, value: str | None) -> None:
        if value is not None:
            try:
                session.set(name, value)
            except UsageError as error:
                app.view.tell(str(error))
        show()

    def choose(name: str | None) -> None:
        if name == "draft":
            changed(name, "off" if session.draft else "on")
        elif name:
            value = settings.text_of(session.options, name)
            app.push_screen(LineSheet(name, value), lambda text: changed(name, text))

    def show() -> None:
        rows = [
            Row(name, f"{name:<18} {settings.text_of(session.options, name)}")
            for name in settings.NAMES
        ]
        rows.append(Row("draft", f"{'draft':<18} {'on' if session.draft else 'off'}"))
        app.push_screen(
            ListSheet("Settings", rows, note="of this conversation; Enter changes one"), choose
        )

    show()


async def stats(app: ChatApp, argument: str) -> None:  # noqa: ARG001 - every action takes one
    """Show or hide the stats."""
    app.view.toggle_stats()


async def lens_sheet(app: ChatApp, argument: str) -> None:  # noqa: ARG001
    """Show where every token of the last answer came from."""
    exchange = app.session.exchange
    if exchange is None or not exchange.tokens:
        raise UsageError("there are no tokens to look at: ask something in this session first")
    body = Text()
    for run in runs(exchange.tokens):
        body.append(run.mark.open, "dim")
        body.append(run.text, run.mark.style)
        body.append(run.mark.close, "dim")
    body.append("\n\n" + "\n".join(legend(exchange.tokens)))
    app.push_screen(TextSheet("Token lens", body))


async def race(app: ChatApp, argument: str) -> None:
    """Answer with and without drafting, side by side."""
    app.push_screen(RaceSheet(app.session.start_race(argument)))


async def help_sheet(app: ChatApp, argument: str) -> None:  # noqa: ARG001
    """List keys and commands."""
    keys = Table.grid("keys", "text", "name", padding=(0, 2, 0, 0))
    for each in key_list(dict(app.preferences.keys)):
        keys.add_row(*each)
    commands = Table.grid("name", "text", padding=(0, 2, 0, 0))
    for command in COMMANDS:
        commands.add_row(Text(f"/{command.name} {command.usage}"), command.summary)
    told = "\nKeys; the word behind each is its name under \\[keys] in chat.toml.\n"
    way = "\nShift+Tab goes from the composer to the messages, Esc back.\n\nCommands\n"
    app.push_screen(TextSheet("Keys and commands", Group(told, keys, way, commands)))
