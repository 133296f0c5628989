"""What the slash commands that concern the conversation do on the screens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from localspec.errors import UsageError
from localspec.ui.attach import without_files
from localspec.ui.commands import number
from localspec.ui.export import write_export
from localspec.ui.sheets import ListSheet, Row

if TYPE_CHECKING:
    from localspec.ui.app import ChatApp


async def new(app: ChatApp, argument: str) -> None:  # noqa: ARG001 - every action takes one
    """Leave this conversation and begin another."""
    app.session.new()
    app.editing = None
    await app.view.show_messages()


async def system(app: ChatApp, argument: str) -> None:
    """Show, set or take away the system prompt."""
    talk = app.session.talk
    if argument:
        talk.set_system(None if argument == "-" else argument)
    app.view.tell(f"system prompt: {talk.system}" if talk.system else "no system prompt")


async def persona(app: ChatApp, argument: str) -> None:
    """Take a named system prompt, or let the user choose one."""
    personas = app.preferences.personas
    if not personas:
        raise UsageError("there are no personas: name some under [personas] in chat.toml")
    if argument:
        if argument not in personas:
            raise UsageError(
                f"there is no persona {argument[:40]!r}: known are {', '.join(personas)}"
            )
        await system(app, personas[argument])
        return

    async def choose(name: str | None) -> None:
        if name:
            await system(app, personas[name])

    rows = [Row(name, name, text) for name, text in personas.items()]
    app.push_screen(ListSheet("Personas", rows), choose)


async def regenerate(app: ChatApp, argument: str) -> None:
    """Answer the last question again."""
    if argument and not argument.isdecimal():
        raise UsageError(f"seed is {argument[:40]!r}: it takes a whole number")
    app.session.regenerate(int(argument) if argument else None)
    await app.view.show_answering()


async def edit(app: ChatApp, argument: str) -> None:
    """Put a question back into the composer, to be asked anew in a branch."""
    numbers = app.session.talk.numbers()
    app.session.talk.question()
    app.editing = number(argument, "question", len(numbers)) if argument else len(numbers)
    text, _ = without_files(app.session.talk.question(app.editing).content)
    app.view.entry.composer.put_aside()
    app.view.entry.composer.fill(text)
    app.view.entry.composer.focus()
    app.view.tell(
        f"question {app.editing}: change it and send it, in a branch of its own; Esc leaves it as it was"
    )


async def branch(app: ChatApp, argument: str) -> None:
    """Go on in a conversation of its own."""
    session = app.session
    app.session.require_rest()
    count = len(session.talk.messages)
    if not count:
        raise UsageError("there is nothing to branch off from: ask something first")
    session.save_state()
    session.talk.branch_off(number(argument, "message", count) if argument else count)
    await app.view.show_messages()
    app.view.tell("this is a conversation of its own now; the other one is in the history")


async def go_on(app: ChatApp, argument: str) -> None:  # noqa: ARG001
    """Let the last answer go on."""
    app.session.go_on()
    await app.view.show_answering()


async def rename(app: ChatApp, argument: str) -> None:
    """Give the conversation a title."""
    if not argument:
        raise UsageError("there is no title: write one behind /rename")
    app.session.talk.rename(argument)
    app.view.tell(f"this conversation is called {argument!r} now")


async def export(app: ChatApp, argument: str) -> None:
    """Write the conversation to a file."""
    talk = app.session.talk
    if talk.conversation is None:
        raise UsageError("this conversation is empty: there is nothing to export")
    path = write_export(talk.history, talk.conversation, argument, app.session.folder)
    app.view.tell(f"written to {path}")


async def drop(app: ChatApp, argument: str) -> None:  # noqa: ARG001
    """Leave the oldest turns out of the context."""
    if app.session.leave_out_oldest():
        await app.view.show_answering()
    app.view.tell(
        "the oldest turns are left out of the context from now on; the system prompt stays"
    )
