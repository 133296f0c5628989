"""MainView: the parts of the main screen, and what they show of the session. Decides nothing."""

from collections.abc import Callable, Collection, Iterator, Mapping

from rich.cells import cell_len
from textual.app import App
from textual.containers import Container, VerticalScroll
from textual.content import Content
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Footer, Static

from localspec.display import clean_line, shortened
from localspec.errors import LocalspecError
from localspec.tui.colours import content_of
from localspec.tui.composer import PLACEHOLDER, Entry
from localspec.tui.keys import key_list
from localspec.tui.message import MessageView
from localspec.tui.message_text import MessageText, growing_text, message_text
from localspec.tui.session import Session
from localspec.tui.stats import FREE, FULL, stats, status
from localspec.tui.transcript import Transcript, TranscriptItem
from localspec.tui.typeset import Typesetter, code_theme, speaker_styles

# What `[keys]` in chat.toml calls it, or a character; and what that does.
_WELCOME = {
    "/": "lists the commands",
    "@": "attaches a file",
    "help": "lists the keys",
    "stats": "shows what drafting saves",
    "model": "chooses another model",
    "stop": "stops an answer",
}

_ATTACHED_ROWS = 4
_LEAST_HEIGHT = 20
"""Rows of a screen on which what is attached is drawn."""
# With less of it, it would mean nothing.
_LEAST_LEFT = 10


class MainView:
    """The main screen.

    Args:
        app: whose screen it is.
        session: what is visible.
        editing: returns the number of the question that is being changed; None while none is.
        keys: the user's own keys, by the name of what they do.
    """

    def __init__(
        self,
        app: App[None],
        session: Session,
        editing: Callable[[], int | None],
        keys: Mapping[str, str],
    ) -> None:
        self._app, self._session, self._editing = app, session, editing
        self._keys_by_name = {name: key for key, name, _ in key_list(keys)}
        self._typesetter: Typesetter | None = None
        self.transcript = Transcript(self.typesetter)
        self.entry = Entry(session.folder, self._attach, self._attached)
        self.entry.composer.report = self.report
        if key := self._keys_by_name["help"]:
            self.entry.composer.placeholder = f"{PLACEHOLDER}, {key} for keys."
        session.tray.changed = self.show_changes
        self._news = Static(id="notice", markup=False)
        self._below = Static("[@click=app.to_end]↓ more below, Ctrl+End goes there[/]", id="below")
        self._keys = Footer(show_command_palette=False, compact=True)
        self._figures, self._status = Static(), Static(id="status", markup=False)
        self.stats = VerticalScroll(self._figures, id="stats", can_focus=False)
        for each in (self._news, self._below, self._keys, self.stats):
            each.display = False
        self._holds: Callable[[], object] | None = None

    def widgets(self) -> Iterator[Widget]:
        """Yield the parts, from top to bottom."""
        yield Container(self.transcript, self.stats, id="body")
        yield self._below
        yield self._news
        yield self._keys
        yield self.entry
        yield self._status

    def typesetter(self) -> Typesetter:
        """Return what lays text out in the colours of now."""
        if self._typesetter is None:
            style = code_theme(self._app.current_theme, self._app.no_color)
            speakers = speaker_styles(self._app.theme_variables)
            pictures = not self._app.no_color
            self._typesetter = Typesetter(self._app.console, style, speakers, pictures)
        return self._typesetter

    def colours_changed(self) -> None:
        """Lay everything out again, in other colours."""
        self._typesetter = None
        self.transcript.lay_out_again()

    def report(self, text: str, holds: Callable[[], object] | None = None) -> None:
        """Show one line of news above the composer; an empty text takes it away.

        Args:
            text: the news.
            holds: called from time to time; the news goes when it returns a false value. None leaves it until there are others.
        """
        self._holds = holds
        self._news.update(clean_line(text))
        self._news.display = bool(text)

    def show_state(self) -> None:
        """Show what the engine is at, and figures of the last answer; take away news that hold no more."""
        session, ready = self._session, self._session.models.ready
        if self._holds is not None and not self._holds():
            self.report("")
        n_ctx = None if ready is None else ready.n_ctx
        figures = status(session.latest, n_ctx, session.context_tokens)
        line = fitted(self._state(), figures, self._status.content_size.width)
        bar = next((at for at, each in enumerate(line) if each in FULL + FREE), len(line))
        content = Content(line).stylize("$text-muted", bar)
        if content != self._status.content:
            self._status.update(content)
        if self.stats.display:
            width = self.stats.scrollable_content_region.width
            resumed = session.has_answers
            lines = stats(session.measured, width, session.gains, resumed=resumed)
            self._figures.update(content_of(lines))
        self._below.display = not self.transcript.follows

    def _state(self) -> str:
        """Return what the engine is at."""
        session, work, docs = self._session, self._session.work, self._session.docs
        name = (
            "not saved · " if session.talk.history.lasting_trouble else ""
        ) + session.models.line
        if work is not None and work.question is not None:
            return f"{name} · waits for your answer to the question above"
        if len(self._app.screen_stack) > 1:
            return f"{name} · a dialog is open"
        parts = [name, "Esc stops"] if session.busy else [name]
        parts += ["system prompt"] * bool(session.talk.system) + ["tools"] * (work is not None)
        parts += [f"docs {docs.name}, ≤ {docs.tokens} tokens"] * bool(docs.name)
        return " · ".join(parts)

    def show_keys(self) -> None:
        """Show the keys of the message that has the focus, if one has."""
        self._keys.display = isinstance(self._app.focused, MessageView)

    def toggle_stats(self) -> None:
        """Show or hide the stats."""
        self.stats.display = not self.stats.display
        self.stats.call_after_refresh(self.show_state)

    async def show_messages(self) -> None:
        """Show the conversation as it stands."""
        await self.transcript.show(self._items())

    async def show_answering(self) -> None:
        """Show the question that is being answered, and the answer as it grows."""
        if (exchange := self._session.exchange) is None:
            return
        items = self._items(exchange.parent)
        await self.transcript.show(items if exchange.continued is None else items[:-1])
        await self.transcript.begin(self._growing())
        self.show_state()

    def grow(self) -> None:
        """Show more of the answer that grows."""
        self.transcript.grow(self._growing())

    async def settle(self) -> None:
        """Show the answer as it was saved; if there is none, the conversation without it."""
        messages = self._session.talk.messages
        if messages and messages[-1].message.role == "assistant" and self.transcript.has_growing:
            last = message_text(messages[-1], passages=self._session.talk.passages)
            self.transcript.settle(TranscriptItem(messages[-1].id, last))
        else:
            await self.show_messages()

    def _items(self, upto: int | None = None) -> list[TranscriptItem]:
        """Return the messages of the conversation, up to one of them or all."""
        talk, items = self._session.talk, []
        numbers, passages = talk.numbers(), talk.passages
        for each in talk.messages:
            text = message_text(each, numbers.get(each.id), passages, self._session.tray.about)
            items.append(TranscriptItem(each.id, text))
            if each.id == upto:
                break
        return items or [
            TranscriptItem(None, MessageText("localspec", self._welcome(), kind="result"))
        ]

    def _welcome(self) -> str:
        """Return what a first look needs, by the keys that do it."""
        lines = [(self._keys_by_name.get(name, name), about) for name, about in _WELCOME.items()]
        width = max(len(key) for key, _ in lines)
        return "\n".join(f"{key:<{width}}  {about}" for key, about in lines if key)

    def show_changes(self) -> None:
        """Show marks, and the tokens of pictures and sounds, as they are known now."""
        if self.transcript.is_attached:
            self.transcript.show_changes(self._items())
            self.entry.show_attached()

    def _attach(self) -> str:
        """Attach the picture in the clipboard; return the text that stands for it, and report why there is none unless text was copied here."""
        try:
            return f"@{self._session.tray.hold_clipboard()} "
        except LocalspecError as error:
            if not self._app.clipboard:
                self.report(str(error))
            return ""

    def _attached(self, text: str, width: int, pasted: Collection[str]) -> list[Strip]:
        """Return what a text attaches: the last picture drawn, unless that would leave little of the screen."""
        media, about = (
            self._session.questions.attached_media(text, self._editing(), pasted),
            self._session.tray.about,
        )
        drawn = _ATTACHED_ROWS if self._app.size.height >= _LEAST_HEIGHT else 0
        return [
            line
            for at, each in enumerate(media, 1)
            for line in self.typesetter().attachment(
                each, f"+ {about(each)}", width, drawn if at == len(media) else 0
            )
        ]

    def _growing(self) -> MessageText:
        exchange, ready = self._session.exchange, self._session.models.ready
        assert exchange is not None  # noqa: S101 - something is being answered
        name = self._session.models.next_name if ready is None else ready.target
        return growing_text(exchange, clean_line(name), exchange.continued)


def fitted(left: str, right: list[str], width: int) -> str:
    """Return a line of a width that begins with as many parts of `left` as fit, and ends with the longest form of `right` beside them."""
    parts = left.split(" · ")
    for form in (" · ".join(parts[:count]) for count in range(len(parts), 0, -1)):
        room = width - cell_len(form)
        for figures in right:
            if cell_len(figures) + 2 <= room:
                return form + " " * (room - cell_len(figures)) + figures
    figures = right[-1] if right and cell_len(right[-1]) + _LEAST_LEFT <= width else ""
    form = shortened(
        left if not figures else parts[0], width - cell_len(figures) - 2 * bool(figures)
    )
    return form + " " * (width - cell_len(form) - cell_len(figures)) + figures
