"""What the slash commands, keys and the palette do on the screens. The plain form has its own (`plain.py`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from localspec.engine.protocol import Failed
from localspec.errors import UsageError
from localspec.ui import conversation_actions, openers
from localspec.ui.commands import Command
from localspec.ui.copying import copied
from localspec.ui.sheets import ListSheet, Row

if TYPE_CHECKING:
    from localspec.ui.app import ChatApp

Action = Callable[["ChatApp", str], Awaitable[None]]


async def run(app: ChatApp, command: Command, argument: str) -> None:
    """Run a command.

    Raises:
        LocalspecError: it cannot be done; one line.
    """
    if app.session.busy and not command.while_busy:
        raise UsageError(f"/{command.name} has to wait: an answer is under way, Esc stops it")
    await ACTIONS[command.name](app, argument)


def ask(app: ChatApp, text: str) -> None:
    """Ask, or ask it instead of the question that is being edited."""
    if app.editing is None:
        app.session.ask(text)
        return
    app.session.ask_instead(app.editing, text)
    app.editing = None


def failed(app: ChatApp, message: Failed) -> None:
    """Say why there is no answer; where the context is full, let the user choose."""
    app.view.tell(message.reason)
    if message.kind != "ContextOverflow":
        return

    async def choose(answer: str | None) -> None:
        if answer == "drop":
            await ACTIONS["drop"](app, "")
        elif answer == "new":
            await ACTIONS["new"](app, "")
        elif answer == "edit":
            await ACTIONS["edit"](app, "")

    rows = [
        Row(
            "drop",
            "leave out the oldest turns",
            "the system prompt stays, and so does what the history keeps",
        ),
        Row("edit", "change the question", "it goes back to the composer"),
        Row("new", "start a new conversation", "this one stays in the history"),
    ]
    app.push_screen(ListSheet("The context is full", rows, note=message.reason), choose)


async def _copy(app: ChatApp, argument: str) -> None:
    app.copy(copied(app.session.talk.messages, argument))


async def _think(app: ChatApp, argument: str) -> None:  # noqa: ARG001
    app.view.transcript.toggle_folds()


async def _stop(app: ChatApp, argument: str) -> None:  # noqa: ARG001
    if not app.session.stop():
        app.view.tell("nothing is under way")


async def _restart(app: ChatApp, argument: str) -> None:  # noqa: ARG001
    app.session.restart()
    await app.view.show_messages()
    app.view.tell("the engine is being started again")


async def _theme(app: ChatApp, argument: str) -> None:
    if argument:
        app.choose_theme(argument)
    else:
        app.search_themes()


async def _quit(app: ChatApp, argument: str) -> None:  # noqa: ARG001
    app.exit()


ACTIONS: Mapping[str, Action] = {
    "new": conversation_actions.new,
    "system": conversation_actions.system,
    "persona": conversation_actions.persona,
    "regenerate": conversation_actions.regenerate,
    "edit": conversation_actions.edit,
    "branch": conversation_actions.branch,
    "continue": conversation_actions.go_on,
    "copy": _copy,
    "rename": conversation_actions.rename,
    "export": conversation_actions.export,
    "think": _think,
    "drop": conversation_actions.drop,
    "stop": _stop,
    "restart": _restart,
    "theme": _theme,
    "quit": _quit,
    "model": openers.model,
    "history": openers.history,
    "set": openers.settings_sheet,
    "stats": openers.stats,
    "lens": openers.lens_sheet,
    "race": openers.race,
    "help": openers.help_sheet,
}
