"""What the keys of a message do; see `keys.ON_MESSAGE`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from localspec.ui import conversation_actions
from localspec.ui.attach import without_files
from localspec.ui.copying import copied

if TYPE_CHECKING:
    from localspec.ui.app import ChatApp
    from localspec.ui.message_view import MessageView


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
            await conversation_actions.branch(app, str(at))
        case "edit" if message.role == "user":
            await conversation_actions.edit(app, str(talk.numbers()[message.id]))
        case "earlier" | "later":
            app.session.require_rest()
            other = talk.turn_aside(message, 1 if what == "later" else -1)
            await app.view.show_messages()
            await app.view.transcript.reveal(other)
        case _:
            pass
