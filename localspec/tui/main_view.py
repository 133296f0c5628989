"""MainView: the parts of the main screen, and what they show of the session. Decides nothing."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.cells import cell_len
from textual.app import App
from textual.containers import Container, VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from localspec.display import clean_line, shortened
from localspec.tui.colours import Line, content_of, keys_of
from localspec.tui.composer import Entry
from localspec.tui.keys import message_hint
from localspec.tui.message import MessageView
from localspec.tui.models import STARTING
from localspec.tui.session import Session
from localspec.tui.shown import Shown, growing, shown
from localspec.tui.stats import FREE, FULL, stats, status
from localspec.tui.transcript import Transcript, TranscriptItem
from localspec.tui.typeset import Typesetter, code_theme, speaker_styles

_GAP = "  "
# With less of it, nobody would know what it says.
_LEAST_LEFT = 8


def fitted(left: Sequence[str], right: Sequence[str], width: int) -> str:
    """Return a line of a width.

    Args:
        left: begins it: forms of one thing, the longest first, of which the first is taken beside which any form of
            the other fits.
        right: ends it, likewise: the first that fits beside it.
        width: in cells.
    """
    for form in left:
        room = width - cell_len(form) - len(_GAP)
        figures = next((each for each in right if cell_len(each) <= room), None)
        if figures is not None:
            return form + " " * (width - cell_len(form) - cell_len(figures)) + figures
    least = min(cell_len(left[-1]), _LEAST_LEFT) + len(_GAP)
    figures = right[-1] if right and least + cell_len(right[-1]) <= width else ""
    room = width - cell_len(figures) - (len(_GAP) if figures else 0)
    form = shortened(left[0] if not figures else left[-1], room)
    return form + " " * max(width - cell_len(form) - cell_len(figures), 0) + figures


class StatusLine(Static):
    """State to the left, figures to the right, in a form that fits."""

    def __init__(self) -> None:
        super().__init__(id="status", markup=False)
        self._left: tuple[str, ...] = (STARTING,)
        self._right: tuple[str, ...] = ()

    def tell(self, left: Sequence[str], right: Sequence[str]) -> None:
        """Show forms of the state and of the figures; nothing is drawn where nothing changed."""
        if (tuple(left), tuple(right)) != (self._left, self._right):
            self._left, self._right = tuple(left), tuple(right)
            self.refresh()

    def render(self) -> Content:
        """Return the line for the width that there is."""
        line = fitted(self._left, self._right, self.content_size.width)
        bar = next((at for at, each in enumerate(line) if each in FULL + FREE), len(line))
        return Content(line).stylize("$text-muted", bar)


class Notice(Static):
    """News, of which there is room for a few lines; errors among them."""

    def __init__(self) -> None:
        super().__init__(id="notice", markup=False)
        self.display = False

    def tell(self, text: str) -> None:
        """Show it until the next; an empty text takes it away."""
        self.update(clean_line(text))
        self.display = bool(text)


class Below(Static):
    """Says that the transcript goes on below, and how to get there."""

    def __init__(self) -> None:
        super().__init__("↓ more below, Ctrl+End goes there", id="below", markup=False)
        self.display = False

    def on_click(self) -> None:
        """Go there."""
        self.app.simulate_key("ctrl+end")


class KeyHint(Static):
    """The keys of the message that has the focus."""

    def __init__(self) -> None:
        super().__init__(id="keys", markup=False)
        self.display = False
        self._keys = ""

    def tell(self, text: str) -> None:
        """Show them, as far as there is room; an empty text takes the line away."""
        self._keys, self.display = text, bool(text)
        self.refresh()

    def render(self) -> Content:
        """Return the line for the width that there is."""
        return keys_of(shortened(self._keys, self.content_size.width))


class StatsPanel(VerticalScroll, can_focus=False):
    """What drafting does, as it does it; beside the conversation where there is room, else below it."""

    def __init__(self) -> None:
        self._text = Static(markup=False)
        super().__init__(self._text, id="stats")
        self.display = False
        self._lines: Callable[[int], Sequence[Line]] = lambda _: ()
        self._width = 0

    def tell(self, lines: Callable[[int], Sequence[Line]]) -> None:
        """Show the lines that are made for its width."""
        self._lines, self._width = lines, self.scrollable_content_region.width
        self._text.update(content_of(lines(self._width)))

    def on_resize(self) -> None:
        """Make them for another width."""
        if self.scrollable_content_region.width != self._width:
            self.tell(self._lines)


_WELCOME = """\
/    lists the commands
@    attaches a file
F1   lists the keys
F2   shows what drafting saves
F8   chooses another model
Esc  stops an answer"""


class MainView:
    """The main screen.

    Args:
        app: whose screen it is.
        session: what is shown.
        keys: the user's own keys, by name.
    """

    def __init__(self, app: App[None], session: Session, keys: Mapping[str, str]) -> None:
        self._app, self._session, self._keys_chosen = app, session, keys
        self._typesetter: Typesetter | None = None
        self.transcript = Transcript(self.typesetter)
        self.entry = Entry(session.folder)
        self._notice, self._below, self._keys = Notice(), Below(), KeyHint()
        self._stats, self._status = StatsPanel(), StatusLine()
        self._holds: Callable[[], object] | None = None

    def widgets(self) -> Iterator[Widget]:
        """Yield the parts, from top to bottom."""
        yield Container(self.transcript, self._stats, id="body")
        yield self._below
        yield self._notice
        yield self._keys
        yield self.entry
        yield self._status

    def typesetter(self) -> Typesetter:
        """Return what lays text out in the colours of now."""
        if self._typesetter is None:
            style = code_theme(self._app.current_theme, self._app.no_color)
            speakers = speaker_styles(self._app.theme_variables)
            self._typesetter = Typesetter(self._app.console, style, speakers)
        return self._typesetter

    def colours_changed(self) -> None:
        """Lay everything out anew, in other colours."""
        self._typesetter = None
        self.transcript.lay_out_again()

    def tell(self, text: str, holds: Callable[[], object] | None = None) -> None:
        """Show one line of news above the composer; an empty text takes it away.

        Args:
            text: the news.
            holds: asked from time to time; the news goes when it says no. None leaves it until there are others.
        """
        self._holds = holds
        self._notice.tell(text)

    def tell_state(self) -> None:
        """Show what the engine is at, and figures of the last answer; take away news that hold no more."""
        session = self._session
        if self._holds is not None and not self._holds():
            self.tell("")
        n_ctx = None if session.models.ready is None else session.models.ready.n_ctx
        figures = status(session.latest, n_ctx, session.context_tokens)
        self._status.tell(self._state_forms(), figures)
        if self._stats.display:
            self._stats.tell(lambda width: stats(session.exchange, width))

    def _state_forms(self) -> list[str]:
        """Return what the engine is at, the longest form first."""
        session = self._session
        name = ("not saved · " if session.talk.history.trouble else "") + session.models.line
        marks = " · system prompt" if session.talk.system else ""
        marks += " · tools" if session.work is not None else ""
        docs = session.docs
        marks += f" · docs {docs.name}, ≤ {docs.tokens} tokens" if docs.name else ""
        work = session.work
        if work is not None and work.question is not None:
            return [f"{name} · waits for your answer to the question above", name]
        if len(self._app.screen_stack) > 1:
            return [f"{name} · a dialog is open", name]
        if session.busy:
            return [f"{name} · answering, Esc stops{marks}", f"{name} · Esc stops", name]
        return [name + marks, name]

    def tell_place(self) -> None:
        """Say where the end is while it is out of sight."""
        self._below.display = not self.transcript.follows

    def tell_keys(self) -> None:
        """Show the keys of the message that has the focus, if one has."""
        view, text = self._app.focused, ""
        if isinstance(view, MessageView):
            messages = {each.id: each for each in self._session.talk.messages}
            versions = view.message_id in messages and len(messages[view.message_id].siblings) > 1
            question = view.shown.kind == "question"
            text = message_hint(self._keys_chosen, question=question, versions=versions)
        self._keys.tell(text)

    def toggle_stats(self) -> None:
        """Show or hide the stats."""
        self._stats.display = not self._stats.display
        self.tell_state()

    def close_stats(self) -> None:
        """Hide the stats."""
        self._stats.display = False

    async def show_messages(self) -> None:
        """Show the conversation as it stands."""
        await self.transcript.show(self._items())

    async def show_answering(self) -> None:
        """Show the question that is being answered, and the answer as it grows."""
        exchange = self._session.exchange
        assert exchange is not None  # noqa: S101 - something is being answered
        items = self._items(exchange.parent)
        await self.transcript.show(items if exchange.continued is None else items[:-1])
        await self.transcript.begin(self._growing())
        self.tell_state()

    def grow(self) -> None:
        """Show more of the answer that grows."""
        self.transcript.grow(self._growing())

    def _items(self, upto: int | None = None) -> list[TranscriptItem]:
        """Return the messages of the conversation, up to one of them or all."""
        talk = self._session.talk
        numbers, passages = talk.numbers(), talk.passages
        found = []
        for each in talk.messages:
            found.append(TranscriptItem(each.id, shown(each, numbers.get(each.id), passages)))
            if each.id == upto:
                break
        return found or [TranscriptItem(None, Shown("localspec", _WELCOME, kind="greeting"))]

    def _growing(self) -> Shown:
        exchange, ready = self._session.exchange, self._session.models.ready
        assert exchange is not None  # noqa: S101 - something is being answered
        name = self._session.models.next_name if ready is None else ready.target
        return growing(exchange, clean_line(name), exchange.continued)
