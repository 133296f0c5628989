"""Screens: the front that draws. What commands show and ask becomes the main view, and sheets over it."""

import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text
from textual.app import App, SuspendNotSupported
from textual.screen import Screen

from localspec.engine.protocol import Failed
from localspec.errors import LocalspecError
from localspec.session.preferences import Preferences, keep_theme
from localspec.storage.files import size_text
from localspec.tui.actions import edited
from localspec.tui.colours import DARK, LIGHT
from localspec.tui.commands import BY_NAME, COMMANDS, Command, run
from localspec.tui.keys import key_list
from localspec.tui.main_view import MainView
from localspec.tui.session import ABOUT, CONTEXT, DRAFT, SETTINGS, Session, StillAnswering
from localspec.tui.sheets import LineSheet, ListSheet, SheetRow, TextSheet

if TYPE_CHECKING:
    from localspec.tui.picker import LargerContext

_MOST_S = 1.0
# The variable that says that there is such a desktop, and what fills its clipboard.
_PROGRAMS = (
    ("WAYLAND_DISPLAY", ("wl-copy",)),
    ("DISPLAY", ("xclip", "-selection", "clipboard")),
    ("DISPLAY", ("xsel", "--clipboard", "--input")),
    ("WSL_DISTRO_NAME", ("clip.exe",)),
    ("HOME", ("pbcopy",)),
)


def filled(text: str) -> bool:
    """Put a text into the clipboard; return whether a program took it. From afar there is only the terminal's."""
    if "SSH_CONNECTION" in os.environ:
        return False
    for variable, command in _PROGRAMS:
        if os.environ.get(variable) and shutil.which(command[0]):
            try:
                done = subprocess.run(  # noqa: S603
                    command,
                    input=text.encode(errors="replace"),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    timeout=_MOST_S,
                    check=False,
                )
            except (OSError, subprocess.TimeoutExpired):
                continue
            if done.returncode == 0:
                return True
    return False


_CONTEXT_IS_FULL = (
    SheetRow(
        "drop",
        "drop the oldest turns",
        "the system prompt stays, and the history keeps everything",
    ),
    SheetRow(
        "compact",
        "summarise the earlier turns",
        "by the model; you see the summary and can change it, and the history keeps everything",
    ),
    SheetRow("edit", "edit the question", "it returns to the input line"),
    SheetRow("new", "start over", "this conversation stays in the history"),
)

_DRAFTS = (
    SheetRow("auto", "auto", "drafts where that is faster"),
    SheetRow("off", "off", "the target alone"),
    SheetRow("lookup", "lookup", "copies what the conversation said before"),
    SheetRow(
        "model", "model", "the draft model, where one is loaded; /set draft model:3 sets a length"
    ),
)

NO_MODEL = "localspec: no model chosen: `localspec chat NAME` uses one, `localspec recommend` suggests some"

_WHEN = (
    SheetRow("model", "now", "your default model stays as it is"),
    SheetRow("default", "now and by default", "loaded at every start"),
)


class Screens:
    """The front of the full-screen chat; see `Front`.

    Args:
        app: has the screens.
        session: what is shown.
        preferences: how the user likes it.
        view: the main screen.

    Attributes:
        editing: the number of the question that is being changed; None while none is.
        theme: name of the colours that are shown.
        opened: name of the command that opened a sheet last, and that sheet.
    """

    def __init__(
        self, app: App[None], session: Session, preferences: Preferences, view: MainView
    ) -> None:
        self._app = app
        self.session, self.preferences, self.view = session, preferences, view
        self.editing: int | None = None
        self.theme = ""
        self.opened: tuple[str, Screen[Any]] | None = None

    async def run(self, name: str, argument: str = "") -> bool:
        """Run a command; what cannot be done is told. Return whether it could."""
        self.tell("")
        before = self._app.screen
        done = await self.attempt(run(self, BY_NAME[name], argument))
        if self._app.screen is not before:
            self.opened = name, self._app.screen
        return done

    async def attempt(self, doing: Awaitable[None]) -> bool:
        """Do something that may fail; if it does, tell why. Return whether it did not."""
        try:
            await doing
        except StillAnswering as error:
            self.tell(str(error), lambda: self.session.busy)
        except (LocalspecError, OSError) as error:
            self.tell(str(error))
        else:
            return True
        return False

    def tell(self, text: str, holds: Callable[[], object] | None = None) -> None:
        """Show one line of news above the composer, as long as it holds; see `MainView.tell`."""
        self.view.tell(text, holds)

    async def show_conversation(self, *, known: bool = False) -> None:  # noqa: ARG002 - of lines
        """Show the messages as they stand."""
        self.editing = None
        await self.view.show_messages()

    async def show_answer(self) -> None:
        """Show the question that is being answered, and the answer as it grows."""
        await self.view.show_answering()

    def show_loading(self) -> None:
        """Show nothing: the status line does, as long as it takes."""

    def copy(self, text: str) -> None:
        """Copy a text, by a program of this machine and by way of the terminal (OSC 52)."""
        self._app.copy_to_clipboard(text)
        if filled(text):
            self.tell(f"copied {len(text)} characters")
        else:
            self.tell(f"sent {len(text)} characters to the terminal's clipboard")

    async def ask_next(self) -> None:
        """Ask the question that waits longest, if one does."""
        waiting = self.session.waiting
        if waiting and not self.session.busy:
            self.session.ask(waiting.pop(0))
            await self.show_answer()

    def take_back_waiting(self) -> None:
        """Put the questions that wait back into the composer: what they followed came to no good end."""
        waiting, composer = self.session.waiting, self.view.entry.composer
        if waiting:
            composer.put_aside()
            composer.fill("\n\n".join(waiting))
            waiting.clear()

    def edit(self, number: int, text: str) -> None:
        """Put a question into the composer; sent from there, it becomes a branch."""
        composer = self.view.entry.composer
        self.editing = number
        composer.put_aside()
        composer.fill(text)
        composer.focus()
        told = f"editing question {number}: Enter sends it as a new branch, Esc cancels"
        self.tell(told, lambda: self.editing is not None)

    def compose(self, text: str) -> None:
        """Put a text into the composer."""
        composer = self.view.entry.composer
        composer.put_aside()
        composer.fill(text)
        composer.focus()

    def leave_edited(self) -> None:
        """Leave the question that is being changed as it was, if one is."""
        if self.editing is not None:
            self.editing = None
            self.view.entry.composer.fill("")
            self.tell("")

    async def open_editor(self) -> None:
        """Give the terminal to an editor, and take what was written into the composer."""
        composer = self.view.entry.composer
        try:
            with self._app.suspend():
                text = edited(composer.text)
        except SuspendNotSupported:
            self.tell("an editor cannot be opened in this terminal")
            return
        composer.fill(text)
        composer.focus()

    def choose(
        self, title: str, hints: Mapping[str, str], take: Callable[[str], Awaitable[None]]
    ) -> None:
        """Show a list of names, and take what is chosen."""

        async def chosen(name: str | None) -> None:
            if name:
                await self.attempt(take(name))

        self._app.push_screen(
            ListSheet(title, [SheetRow(name, name, hint) for name, hint in hints.items()]), chosen
        )

    def choose_model(self, *, first: bool = False) -> None:
        """Show the models; `first` says that nobody chose one yet."""
        from localspec.tui.picker import LEAVE, Picker  # noqa: PLC0415 - not at the start

        async def taken(when: str | None, name: str) -> None:
            if when is not None:
                await self.run("model", name)
            if when == "default":
                await self.run("set", f"model {name}")

        async def chosen(name: str | None) -> None:
            if name == LEAVE:
                self._app.exit(message=NO_MODEL)
            elif name and first:
                await taken("default", name)
            elif name:
                sheet = ListSheet(f"Load {name}", _WHEN)
                self._app.push_screen(sheet, lambda when: taken(when, name))

        models = self.session.models
        picker = Picker(models.name, first=first, offline=models.usual.offline)
        self._app.push_screen(picker, chosen)

    def choose_theme(self, name: str) -> None:
        """Change the colours, or say which there are; without a name, show them."""
        if not name:
            self._app.search_themes()
        elif name in self._app.available_themes:
            self._app.theme = name
        else:
            known = ", ".join([DARK, LIGHT, *sorted({*self._app.available_themes} - {DARK, LIGHT})])
            self.tell(f"there is no theme {name[:40]!r}: choose one of {known}")

    def theme_changed(self, name: str) -> None:
        """Lay everything out in other colours, and keep them for the next time.

        Textual tells of the first ones, too.
        """
        if name == self.theme:
            return
        self.theme = name
        self.view.colours_changed()
        try:
            keep_theme(self.preferences, name)
        except LocalspecError as error:
            self.tell(str(error))

    def show_history(self, words: str) -> None:
        """Show earlier conversations, to be searched, taken up and more."""
        from localspec.chat.gated import gate_of  # noqa: PLC0415 - not at the start
        from localspec.session.export import export_line, write_export  # noqa: PLC0415
        from localspec.tui.history_sheet import HistorySheet  # noqa: PLC0415

        session, history = self.session, self.session.talk.history

        def export(conversation: int) -> str:
            try:
                path, masked = write_export(
                    history, conversation, "", session.folder, gate_of("usual").cleaned
                )
            except LocalspecError as error:
                return str(error)
            return export_line(path, masked, conversation)

        async def take_up(conversation: str | None) -> None:
            if conversation:
                await self.run("history", f"#{conversation}")
            else:  # the one that is shown may be gone
                await self.view.show_messages()

        self._app.push_screen(HistorySheet(history, words, export, session.delete), take_up)

    def show_settings(self) -> None:
        """Show the settings; Enter changes one, and all are shown again."""
        settings = self.session.settings

        def change(name: str, value: str | None) -> None:
            if value is not None:
                try:
                    self.session.set(name, value)
                except LocalspecError as error:
                    self.tell(str(error))
            self.show_settings()

        def chosen(name: str | None) -> None:
            if name == DRAFT:
                sheet = ListSheet(name, _DRAFTS, marked=settings.draft)
                self._app.push_screen(sheet, lambda text: change(name, text))
            elif name:
                line = LineSheet(name, self.session.setting(name), ABOUT[name])
                self._app.push_screen(line, lambda text: change(name, text))

        lines = self.session.setting_lines()
        rows = [
            SheetRow(name, line, aside=ABOUT[name])
            for name, line in zip(SETTINGS, lines, strict=True)
        ]
        sheet = ListSheet("Settings of this conversation", rows, keys="Enter edits · Esc closes")
        sheet.list.add_class("lines")
        self._app.push_screen(sheet, chosen)

    def show_stats(self) -> None:
        """Show the panel of stats, or hide it."""
        self.view.toggle_stats()

    def show_text(self, title: str, text: str) -> None:
        """Show a text to be read."""
        self._app.push_screen(TextSheet(title, text))

    def show_lens(self) -> None:
        """Show the last answer with the origin of every token."""
        from localspec.tui.lens_sheet import LensSheet  # noqa: PLC0415 - likewise

        self._app.push_screen(LensSheet(self.session.happened))

    def show_race(self, text: str) -> None:
        """Start a race, and show it."""
        from localspec.tui.race_sheet import RaceSheet  # noqa: PLC0415 - likewise

        self._app.push_screen(RaceSheet(self.session.start_race(text)))

    def show_help(self) -> None:
        """List keys and commands."""
        body = help_text(self.preferences.keys, [each for each in COMMANDS if not each.rare])
        self._app.push_screen(TextSheet("Keys and commands", body))

    def toggle_thoughts(self) -> None:
        """Unfold thoughts and long questions, or fold them."""
        self.view.transcript.toggle_folds()
        exchange = self.session.exchange
        thoughts = [each.message.thinking for each in self.session.talk.messages]
        if not any([*thoughts, exchange is not None and exchange.thoughts]):
            self.tell("no thoughts in this conversation")

    def leave(self) -> None:
        """End the app."""
        self._app.exit()

    def tell_refusal(self, message: Failed) -> None:
        """Say why there is no answer; where the context is full, let the user choose what to do."""
        if message.kind != "ContextOverflow":
            self.tell(message.reason)
            return

        async def chosen(name: str | None) -> None:
            if name == CONTEXT and larger is not None:
                await self.run("set", f"{CONTEXT} {larger.n_ctx}")
                if self.session.ask_again():
                    await self.show_answer()
            elif name == "drop":
                await self.run("compact", name)
            elif name:
                await self.run(name)
            else:
                self.tell(message.reason)

        larger = self._larger_context()
        rows = list(_CONTEXT_IS_FULL)
        if larger is not None:
            more = f"+ {size_text(larger.more_bytes)} of memory"
            rows.insert(0, SheetRow(CONTEXT, f"reload with {larger.n_ctx} tokens", more))
        note = message.reason.partition(": ")[0]
        self._app.push_screen(ListSheet("The context is full", rows, note=note), chosen)

    def _larger_context(self) -> "LargerContext | None":
        # Imported late: numpy comes with it.
        from localspec.tui.picker import larger_context  # noqa: PLC0415

        ready, load = self.session.models.ready, self.session.models.usual.load
        return None if ready is None else larger_context(ready.target, ready.n_ctx, load.kv_type)


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
