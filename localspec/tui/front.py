"""Front: what commands know of the way in which the user talks: on screens, or in plain lines."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from localspec.session.preferences import Preferences
from localspec.tui.session import Session


class Front(Protocol):
    """Shows what a command did, and asks for what it still has to know. Decides nothing."""

    @property
    def session(self) -> Session:
        """The conversation, and the models that answer in it."""

    @property
    def preferences(self) -> Preferences:
        """How the user likes it."""

    def report(self, text: str) -> None:
        """Show one line of news."""

    async def show_conversation(self, *, known: bool = False) -> None:
        """Show the messages as they stand; those that are `known` were visible before."""

    def show_changes(self) -> None:
        """Show what messages say now of themselves."""

    async def show_answer(self) -> None:
        """Show the answer that was requested, as it grows."""

    async def show_loading(self) -> None:
        """Show the models that were requested, once they are loaded, or why they cannot be."""

    def copy(self, text: str) -> None:
        """Give a text to the user, to be used elsewhere."""

    def edit(self, number: int, text: str) -> None:
        """Let the user change the `number`-th question, `text`."""

    def write(self, text: str) -> None:
        """Let the user change a text and send it."""

    def attach(self, name: str) -> None:
        """Let the user attach a picture or a sound that is no file, by its name."""

    async def record(self, take: Callable[[bytes], Awaitable[None]]) -> None:
        """Record from the microphone until the user presses Enter; then `take` the file."""

    async def open_editor(self) -> None:
        """Let the user write in an editor of their own."""

    def choose(
        self, title: str, hints: Mapping[str, str], take: Callable[[str], Awaitable[None]]
    ) -> None:
        """Let the user choose a name; what is known of each is its hint. Then `take` it."""

    async def delete(self, title: str, delete: Callable[[], Awaitable[None]]) -> None:
        """Let the user say whether a conversation is meant to be deleted, and then `delete` it."""

    def choose_model(self) -> None:
        """Let the user choose a pair."""

    def choose_theme(self, name: str) -> None:
        """Change the colours; without a name, let the user choose them."""

    def show_history(self, words: str) -> None:
        """List the conversations that hold these words; without any, all."""

    def show_settings(self) -> None:
        """Show how answers are made, to be changed."""

    def show_stats(self) -> None:
        """Show what drafting did, or hide it."""

    def show_text(self, title: str, text: str) -> None:
        """Show a text to be read."""

    def show_lens(self) -> None:
        """Show where every token of the last answer came from; there are some."""

    def show_help(self) -> None:
        """List keys and commands."""

    def toggle_thoughts(self) -> None:
        """Show thoughts and long questions, or fold them."""

    def leave(self) -> None:
        """End the chat."""
