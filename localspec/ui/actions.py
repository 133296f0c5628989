"""What the slash commands, keys and the palette do on the screens. The plain form has its own (`plain.py`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from localspec.engine.protocol import Failed
from localspec.errors import UsageError
from localspec.ui import openers
from localspec.ui.attach import without_files
from localspec.ui.commands import BY_NAME, Command, number
from localspec.ui.copying import copied
from localspec.ui.export import write_export
from localspec.ui.sheets import ListSheet, Row

if TYPE_CHECKING:
    from localspec.ui.app import ChatApp
    from localspec.ui.message_view import MessageView

__all__ = ["ACTIONS", "BY_NAME", "ask", "failed", "on_message", "run"]

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
    app.tell(message.reason)
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


async def on_message(app: ChatApp, view: MessageView, what: str) -> None:
    """Do something with one message of the transcript."""
    talk = app.session.talk
    message = next((each for each in talk.messages if each.id == view.message_id), None)
    if what == "think":
        view.toggle_fold()
    if message is None:
        return
    at = talk.messages.index(message) + 1
    match what:
        case "copy":
            app.copy(without_files(message.content)[0])
        case "code":
            app.copy(copied([message], "code"))
        case "branch":
            await _branch(app, str(at))
        case "edit" if message.role == "user":
            await _edit(app, str(talk.numbers()[message.id]))
        case "earlier" | "later":
            app.session.require_rest()
            talk.turn_aside(message, 1 if what == "later" else -1)
            await app.show_messages()
        case _:
            pass


async def _new(app: ChatApp, argument: str) -> None:  # noqa: ARG001 - every action takes one
    app.session.new()
    app.editing = None
    await app.show_messages()


async def _system(app: ChatApp, argument: str) -> None:
    talk = app.session.talk
    if argument:
        talk.set_system(None if argument == "-" else argument)
    app.tell(f"system prompt: {talk.system}" if talk.system else "no system prompt")


async def _persona(app: ChatApp, argument: str) -> None:
    personas = app.preferences.personas
    if not personas:
        raise UsageError("there are no personas: name some under [personas] in chat.toml")
    if argument:
        if argument not in personas:
            raise UsageError(
                f"there is no persona {argument[:40]!r}: known are {', '.join(personas)}"
            )
        await _system(app, personas[argument])
        return

    async def choose(name: str | None) -> None:
        if name:
            await _system(app, personas[name])

    rows = [Row(name, name, text) for name, text in personas.items()]
    app.push_screen(ListSheet("Personas", rows), choose)


async def _regenerate(app: ChatApp, argument: str) -> None:
    if argument and not argument.isdecimal():
        raise UsageError(f"seed is {argument[:40]!r}: it takes a whole number")
    app.session.regenerate(int(argument) if argument else None)
    await app.show_answering()


async def _edit(app: ChatApp, argument: str) -> None:
    numbers = app.session.talk.numbers()
    app.session.talk.question()
    app.editing = number(argument, "question", len(numbers)) if argument else len(numbers)
    text, _ = without_files(app.session.talk.question(app.editing).content)
    app.entry.composer.fill(text)
    app.entry.composer.focus()
    app.tell(
        f"question {app.editing}: change it and send it, in a branch of its own; Esc leaves it as it was"
    )


async def _branch(app: ChatApp, argument: str) -> None:
    session = app.session
    app.session.require_rest()
    count = len(session.talk.messages)
    if not count:
        raise UsageError("there is nothing to branch off from: ask something first")
    session.save_state()
    session.talk.branch_off(number(argument, "message", count) if argument else count, session.pair)
    await app.show_messages()
    app.tell("this is a conversation of its own now; the other one is in the history")


async def _continue(app: ChatApp, argument: str) -> None:  # noqa: ARG001
    app.session.go_on()
    await app.show_answering()


async def _copy(app: ChatApp, argument: str) -> None:
    app.copy(copied(app.session.talk.messages, argument))


async def _rename(app: ChatApp, argument: str) -> None:
    if not argument:
        raise UsageError("there is no title: write one behind /rename")
    app.session.talk.rename(argument)
    app.tell(f"this conversation is called {argument!r} now")


async def _export(app: ChatApp, argument: str) -> None:
    talk = app.session.talk
    if talk.conversation is None:
        raise UsageError("this conversation is empty: there is nothing to export")
    path = write_export(talk.history, talk.conversation, argument, app.session.folder)
    app.tell(f"written to {path}")


async def _think(app: ChatApp, argument: str) -> None:  # noqa: ARG001
    app.transcript.toggle_folds()


async def _drop(app: ChatApp, argument: str) -> None:  # noqa: ARG001
    if app.session.leave_out_oldest():
        await app.show_answering()
    app.tell("the oldest turns are left out of the context from now on; the system prompt stays")


async def _stop(app: ChatApp, argument: str) -> None:  # noqa: ARG001
    if not app.session.stop():
        app.tell("nothing is under way")


async def _restart(app: ChatApp, argument: str) -> None:  # noqa: ARG001
    app.session.restart()
    await app.show_messages()
    app.tell("the engine is being started again")


async def _theme(app: ChatApp, argument: str) -> None:
    if argument:
        app.choose_theme(argument)
    else:
        app.search_themes()


async def _quit(app: ChatApp, argument: str) -> None:  # noqa: ARG001
    app.exit()


ACTIONS: Mapping[str, Action] = {
    "new": _new,
    "system": _system,
    "persona": _persona,
    "regenerate": _regenerate,
    "edit": _edit,
    "branch": _branch,
    "continue": _continue,
    "copy": _copy,
    "rename": _rename,
    "export": _export,
    "think": _think,
    "drop": _drop,
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
