"""Composer: where the user writes, many lines at a time, with recall; above it, what may be completed."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rich.segment import Segment, Segments
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.strip import Strip
from textual.widgets import OptionList, Static, TextArea
from textual.widgets.option_list import Option

from localspec.display import clean_input, clean_line
from localspec.session.attachments import completions, dragged_mentions, mentions, pasted_alone
from localspec.tui.commands import BY_NAME, goes_on, matching
from localspec.tui.keys import IN_COMPOSER

_PATH = re.compile(r"""(?:^|\s)@(["']?)([^\s"']*)$""")
_ARGUMENT = re.compile(r"/(\w+) (\S*)$")
_ROOM_FOR_ARGUMENTS = 60
_ROWS = 6  # of the list of completions, as app.tcss has it
_SHOWN = 20
_LATEST = "the last question (type words first to search for them)"
PLACEHOLDER = "Ask something. / for commands, @ for files"


@dataclass(frozen=True, slots=True)
class Completion:
    """One thing that the text may become.

    Args:
        label: what the list shows.
        hint: what it means, or how large it is.
        text: all that is written then.
        whole: whether nothing is missing then, so that it may be sent.
    """

    label: str
    hint: str
    text: str
    whole: bool = False


def complete(text: str, offset: int, folder: Path) -> list[Completion]:
    """Return what the text may become.

    Args:
        text: all that is written.
        offset: where the cursor is.
        folder: what paths are relative to.
    """
    before, after = text[:offset], text[offset:]
    if before.startswith("/") and not after:
        made = []
        for each in matching(before):
            whole = f"/{each.name}{' ' * bool(each.usage)}"
            label = f"/{each.name} {each.usage}".rstrip()
            made.append(Completion(label, each.summary, whole, not each.needs_more))
        return made or _arguments(before)
    match = _PATH.search(before)
    if match is None:
        return []
    made, begins = [], before[: match.start(1) - 1]
    for name, size in completions(match[2], folder):
        quote = '"' if " " in name else ""
        path = f"@{quote}{name}{'' if name.endswith('/') else quote + ' '}"
        if name != match[2]:
            made.append(Completion(clean_line(name), size, begins + path + after))
    return made


def _arguments(before: str) -> list[Completion]:
    match = _ARGUMENT.match(before)
    command = BY_NAME.get(match[1]) if match else None
    if match is None or command is None:
        return []
    return [
        Completion(word, "", f"{before[: match.start(2)]}{word} ")
        for word in command.arguments
        if word.startswith(match[2]) and word != match[2]
    ]


class Composer(TextArea):
    """The text area itself.

    Enter sends; Ctrl+J, Alt+Enter and, where the terminal tells them apart, Shift+Enter begin a line.

    Args:
        menu: takes a key for the open list of completions; returns whether it did.
        clipboard: attaches the picture in the clipboard; returns the text that stands for it, empty where there is none.
        folder: what paths are relative to.

    Attributes:
        recall: what was sent, oldest first.
        report: shows a line of news as long as its second argument returns a true value.
    """

    BINDINGS: ClassVar[list[BindingType]] = IN_COMPOSER

    class Sent(Message):
        """The user sent a text, in which some mentions of files were only pasted."""

        def __init__(self, text: str, pasted: frozenset[str] = frozenset()) -> None:
            self.text, self.pasted = text, pasted
            super().__init__()

    def __init__(
        self, menu: Callable[[str], bool], clipboard: Callable[[], str], folder: Path
    ) -> None:
        super().__init__(
            soft_wrap=True,
            show_line_numbers=False,
            compact=True,
            tab_behavior="focus",
            placeholder=f"{PLACEHOLDER}.",
        )
        self.cursor_blink = False  # the screen would be drawn twice a second for it
        self.recall: list[str] = []
        self.report: Callable[[str, Callable[[], object]], None] = lambda *_: None
        self._menu, self._clipboard, self._folder = menu, clipboard, folder
        self._at: int | None = None
        self._draft = self._wanted = ""
        self._pasted: Counter[str] = Counter()
        self._pasted_in: dict[str, frozenset[str]] = {}
        self._under_way: list[str] = []

    @property
    def pasted(self) -> frozenset[str]:
        """The mentions of files in the text that nobody typed or picked; they attach nothing."""
        return pasted_alone(self.text, self._pasted.elements())

    @property
    def is_recalled(self) -> bool:
        """Whether the text is an earlier one as it was: no list of completions takes the keys that go on to others."""
        return self._at is not None and self.text == self.recall[self._at]

    def forget_deleted(self) -> None:
        """Forget what was pasted and is there no more: typed behind that, it is chosen."""
        self._pasted &= Counter(mentions(self.text))

    def action_send(self) -> None:
        """Send what is written, or take the completion that is marked."""
        if self._menu("enter"):
            return
        # What the app has not come to stands there yet; a second Enter, or one behind a second text, does not send it again.
        text = self.text.lstrip("\n").removeprefix("".join(self._under_way)).strip("\n")
        if goes_on(text):
            self.insert("\n")
        elif text.strip():
            self.send(text)

    def send(self, text: str) -> None:
        """Send a text that is written."""
        self._under_way.append(text)
        self.post_message(self.Sent(text, self.pasted))

    def arrived(self, text: str) -> None:
        """Take note that the app has a text that was sent, which it accepts, or leaves to be mended and sent again."""
        self._under_way.remove(text)

    def accept(self, text: str) -> None:
        """Take note that a text was sent: it can be recalled, and what was typed behind it stays."""
        self._remember(text)
        self._pasted_in[text] = pasted_alone(text, self._pasted.elements())
        written = self.text
        self.fill(written[len(text) :].lstrip("\n") if written.startswith(text) else "")

    def put_aside(self) -> None:
        """Keep what is being written where it can be recalled: something else takes its place."""
        self._leave_recall()
        self._pasted_in[self.text] = self.pasted
        self._remember(self.text)

    def type(self, text: str) -> None:
        """Take the focus, and write what was typed or pasted elsewhere."""
        self.screen.set_focus(self)  # at once: `focus` would wait its turn behind the next key
        result = self.replace(clean_input(text), *self.selection)
        self.move_cursor(result.end_location)

    def fill(self, text: str, pasted: Iterable[str] | None = None) -> None:
        """Put a text into the composer, the cursor behind it; `pasted` are its mentions that attach nothing, by default those of now."""
        if self._at is not None:
            self._at = None
            self._remember(self._draft)
        if pasted is not None:
            counts = Counter(mentions(text))
            self._pasted = Counter({name: counts[name] for name in pasted})
        self.load_text(text)
        self.move_cursor(self.document.end)

    async def action_leave_or_delete(self) -> None:
        """Leave, as Ctrl+D does where nothing is written; else delete what is right of the cursor."""
        if self.text:
            self.action_delete_right()
        else:
            await self.run_action("app.quit")

    def action_delete_to_start_of_line(self) -> None:
        """Delete what is left of the cursor in its line, and an empty line itself; never join two."""
        row, column = self.cursor_location
        if column or not self.selection.is_empty or not self.document.get_line(row):
            super().action_delete_to_start_of_line()

    def action_newline(self) -> None:
        """Begin a new line."""
        self.insert("\n")

    async def on_key(self, event: events.Key) -> None:
        """Take the keys of an open list, of earlier texts and of the app; the rest is typed."""
        at_first, at_last = self.cursor_at_first_line, self.cursor_at_last_line
        if (
            (event.key in {"up", "down", "tab", "escape"} and self._menu(event.key))
            or event.key == "tab"  # what is typed next must not be for another widget
            or (event.key == "up" and at_first and self._recall(-1))
            or (event.key == "down" and at_last and self._recall(1))
            or await self._run_binding(event)
        ):
            event.stop()
            event.prevent_default()

    async def _run_binding(self, event: events.Key) -> bool:
        """Run what a key is bound to; return whether there was something.

        At once, and not when the key went through all parents: letters that follow it would come before it.
        """
        bound = None if event.is_printable else self.screen.active_bindings.get(event.key)
        if bound is not None and await self.app.run_action(bound.binding.action, bound.node):
            return True
        if event.key == "enter":
            event.prevent_default()  # a binding sends, be it of another key
        return False

    def on_paste(self, event: events.Paste) -> None:
        """Write what is pasted, without what a terminal would obey; the paths of pictures and sounds as mentions."""
        event.stop()
        event.prevent_default()
        self.paste(event.text)

    def paste(self, text: str) -> None:
        """Take the focus, and write what was pasted."""
        dragged = dragged_mentions(text, self._folder)
        if not dragged:
            self._pasted.update(mentions(clean_input(text)))
        self.type(f"{dragged.strip()} " if dragged else text)

    def action_paste(self) -> None:
        """Attach the picture in the clipboard, or write the text that was copied here."""
        if attached := self._clipboard():
            self.type(attached)
        else:
            super().action_paste()

    @property
    def cursor_offset(self) -> int:
        """Where the cursor is, in characters."""
        row, column = self.cursor_location
        return sum(len(self.document.get_line(each)) + 1 for each in range(row)) + column

    def _recall(self, step: int) -> bool:
        """Show an earlier text, or a later one; return whether there was one."""
        self._leave_recall()
        at = len(self.recall) if self._at is None else self._at
        if self._at is None:
            self._draft = self.text
            self._pasted_in[self._draft] = self.pasted
        to = at + step
        if not 0 <= to <= len(self.recall) or (self._at is None and step > 0):
            return False
        self._at = None
        earlier = self._draft if to == len(self.recall) else self.recall[to]
        self.fill(earlier, self._pasted_in.get(earlier, ()))
        self._at = None if to == len(self.recall) else to
        return True

    def action_search(self) -> None:
        """Show the latest earlier text that has what is typed, and the one before it when pressed again."""
        self._leave_recall()
        if self._at is None:
            self._wanted = self.text.casefold()
        wanted, at = self._wanted, len(self.recall) if self._at is None else self._at
        steps = [each - at for each in range(at) if wanted in self.recall[each].casefold()]
        if not steps or not self._recall(steps[-1]):
            news = "no earlier question has that" if self._at is None else "no earlier one has that"
            self.app.notify(news, timeout=2)
            return
        found = f"the last question with {self._wanted[:_SHOWN]!r}" if self._wanted else _LATEST
        here = self._at
        self.report(f"{found} · Ctrl+R: the one before · ↓: back", lambda: self._at == here)

    def _leave_recall(self) -> None:
        """Where a recalled text was changed, it is a new one, and the one before the recall can be recalled, too."""
        if self._at is not None and self.text != self.recall[self._at]:
            self._at = None
            self._remember(self._draft)

    def _remember(self, text: str) -> None:
        if text in self.recall:
            self.recall.remove(text)
        if text.strip():
            self.recall.append(text)


class Entry(Vertical):
    """Composer and, above it, what may be completed, and what is attached.

    Args:
        folder: what paths are relative to.
        clipboard: see `Composer`.
        lay_out: returns the lines, so wide, of the pictures and sounds that a text attaches, but for what was pasted.
    """

    def __init__(
        self,
        folder: Path,
        clipboard: Callable[[], str],
        lay_out: Callable[[str, int, Collection[str]], Sequence[Strip]],
    ) -> None:
        super().__init__(id="entry")
        self.composer = Composer(self._menu, clipboard, folder)
        self.list_open = False
        self._folder, self._lay_out = folder, lay_out
        self._attached = Static(id="attached")
        self._lines: Sequence[Strip] = ()
        self._list = OptionList(id="completions", compact=True)
        self._more = Static(id="more", markup=False)
        self._completions: list[Completion] = []
        self._completed = ""

    def compose(self) -> ComposeResult:
        """Return the list, how much of it is out of sight, and the composer."""
        self._list.can_focus = False
        self._open([])
        self._attached.display = False
        yield self._attached
        yield self._list
        yield self._more
        yield self.composer

    def on_text_area_changed(self) -> None:
        """Show what fits what is being typed."""
        self.composer.forget_deleted()
        self._follow()
        self.show_attached()

    def on_resize(self) -> None:
        """Lay out what is attached for another width."""
        self.show_attached()

    def show_attached(self) -> None:
        """Show the pictures and sounds that go with the question."""
        text, width = self.composer.text, self.size.width - 2
        before, self._lines = self._lines, self._lay_out(text, width, self.composer.pasted)
        if self._lines != before:
            self._attached.display = bool(self._lines)
            line = Segment.line()
            self._attached.update(Segments([s for each in self._lines for s in (*each, line)]))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Take what was clicked on."""
        event.stop()
        self._take(event.option_index, send=False)
        self.composer.focus()

    def _menu(self, key: str) -> bool:
        """Move in the open list, take what is marked, or close it; return whether there is one."""
        self._follow()
        if not self.list_open:
            return False
        if key == "escape":
            self._open([])
            if self.composer.text == "/":  # which opened it
                self.composer.fill("")
        elif key == "up":
            self._list.action_cursor_up()
        elif key == "down":
            self._list.action_cursor_down()
        elif key == "tab" or self._list.highlighted is not None:
            self._take(self._list.highlighted or 0, send=key == "enter")
        return True

    def _take(self, index: int, *, send: bool) -> None:
        made = self._completions[index]
        self._open([])
        # What is whole already needs no second Enter.
        if send and (made.whole or made.text.strip() == self.composer.text.strip()):
            self.composer.fill(made.text.rstrip())
            self.composer.send(made.text.rstrip())
        else:
            self.composer.fill(made.text)

    def _follow(self) -> None:
        """Open the list for the text of now, of which no news may have come: keys of a paste, or on a busy machine, are quicker."""
        text = self.composer.text
        if text != self._completed:
            self._completed = text
            offset = self.composer.cursor_offset
            self._open([] if self.composer.is_recalled else complete(text, offset, self._folder))

    def _open(self, possible: list[Completion]) -> None:
        self._completions = possible
        self._list.display = self.list_open = bool(possible)
        self._more.display = len(possible) > _ROWS
        labels = [each.label for each in possible]
        if self.size.width < _ROOM_FOR_ARGUMENTS:  # what it does says more than what it takes
            labels = [each.split()[0] if each.startswith("/") else each for each in labels]
        width = max(map(len, labels), default=0)
        rows = zip(labels, possible, strict=True)
        self._list.set_options(
            Option(Content(f"{label:<{width}}  {each.hint}")) for label, each in rows
        )
        self._more.update(f"{_ROWS} of {len(possible)} · ↑↓ shows the others")
        # Behind a bare slash none is meant yet: Enter would run the first.
        self._list.highlighted = 0 if possible and self.composer.text != "/" else None
