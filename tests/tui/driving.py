"""Drives the chat in a terminal that is not there, with an engine double that speaks the real protocol."""

import asyncio
import inspect
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rich.segment import Segment
from textual import events
from textual._compositor import LayoutUpdate
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widget import Widget

from localspec.engine.remote_engine import RemoteEngine
from localspec.history.archive import History
from localspec.messages import MediaPart
from localspec.options import LaunchOptions, ReplyOptions
from localspec.session.approval import CallRunner
from localspec.session.conversation import SavedConversation
from localspec.session.preferences import Preferences
from localspec.tui.app import ChatApp
from localspec.tui.composer import Composer
from localspec.tui.exchange import Exchange
from localspec.tui.session import Session
from localspec.tui.transcript import Transcript
from tests.engine.double import command

PATIENCE_S = 90.0  # a machine may be busy with something else
SCREENS = Path(__file__).parent / "screens"
PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
_REFRESHES = 9
"""Times that a screen is drawn at most until nothing of it is to be drawn any more."""


@dataclass(frozen=True, slots=True)
class Chat:
    """A chat that is running."""

    app: ChatApp
    pilot: Pilot[None]

    @property
    def session(self) -> Session:
        return self.app.session

    @property
    def composer(self) -> Composer:
        return self.app.view.entry.composer

    @property
    def transcript(self) -> Transcript:
        return self.app.view.transcript

    @property
    def exchange(self) -> Exchange:
        assert self.session.exchange is not None
        return self.session.exchange

    @property
    def contents(self) -> list[str]:
        """The messages, as they are stored."""
        return [each.message.text for each in self.session.talk.messages]

    @property
    def questions(self) -> list[str]:
        """Every second message."""
        return self.contents[::2]

    @property
    def line(self) -> str:
        """All that the screen shows, on one line."""
        return " ".join(self.text().split())

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until something holds."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + PATIENCE_S
        while not holds():
            assert loop.time() < end_s, f"waited in vain; the screen says:\n{self.text()}"
            await asyncio.sleep(0.02)  # a pause of the pilot asks every widget
        await self.settle()

    async def until_text(self, *texts: str, lacks: str = "") -> None:
        """Wait until the screen shows texts, wherever its lines end, and lacks one."""
        await self.until(lambda: not self._missing(texts, lacks))

    async def until_sheet(self, kind: type[object], key: str = "") -> None:
        """Press a key, and wait for a screen."""
        await self.press(*[key] * bool(key))
        await self.until(lambda: isinstance(self.app.screen, kind))

    async def back(self) -> None:
        """Close the screens over the chat."""
        await self.press("escape")
        await self.until(lambda: len(self.app.screen_stack) == 1)

    async def until_rest(self) -> None:
        """Wait for the end of what is under way."""
        await self.until(lambda: not self.session.busy)

    async def settle(self) -> None:
        """Wait until all that follows from what has happened is drawn.

        A pause of the pilot ends by clocks: where other programs have the processor, before anything had a turn.
        """
        await self.pilot.pause()
        for _ in range(_REFRESHES):
            await _until_idle()
            stack = self.app.screen_stack if self.app.is_running else []
            if not stack or not _has_to_draw(stack[-1]):
                break
            stack[-1]._on_timer_update()

    async def press(self, *keys: str, rest: bool = False, **seen: Any) -> None:
        """Press keys, wait for the end of what they begin if that is said, and until it is as with `see`."""
        await self.pilot.press(*keys)
        await self.settle()
        if rest:
            await self.until_rest()
        if seen:
            await self.until(lambda: not self._missing(**seen))

    def see(self, **seen: Any) -> None:
        """See that the screen shows texts, wherever its lines end, and lacks one, and what the composer has."""
        assert not self._missing(**seen), (self._missing(**seen), self.text())

    def _missing(
        self, shows: str | Sequence[str] = (), lacks: str = "", typed: str | None = None
    ) -> list[str]:
        texts = [shows] if isinstance(shows, str) else shows
        missing = [each for each in texts if each not in self.text() and each not in self.line]
        missing += [f"no {lacks}"] * bool(lacks and lacks in self.line)
        wrong = typed is not None and self.composer.text != typed
        return missing + [f"typed is {self.composer.text}"] * wrong

    async def click(self, widget: Widget | None = None, at: tuple[int, int] = (0, 0)) -> None:
        await self.pilot.click(widget, offset=at)
        await self.settle()

    def let(self, name: str) -> None:
        """Make the file that the script waits for."""
        (self.session.folder.parent / name).touch()

    async def type(self, text: str) -> None:
        """Type a text into the composer, all at once: quicker than its keys one by one."""
        self.composer.type(text)
        await self.settle()

    async def paste(self, text: str) -> None:
        """Paste a text into the composer."""
        self.composer.post_message(events.Paste(text))
        await self.settle()

    async def ask(self, text: str, **seen: Any) -> None:
        """Ask, and wait for the end of the answer."""
        await self.begin(text)
        await self.until_rest()
        self.see(**seen)

    async def begin(self, text: str) -> None:
        """Ask, and wait until the question is there."""
        await self.run(text)
        await self.until(lambda: self.session.exchange is not None)

    async def until_answering(self) -> str:
        """Wait until an answer has begun; return what there is of it."""
        await self.until(lambda: self.exchange.answer)
        return self.exchange.answer

    async def run(self, text: str, sheet: Any = None, **seen: Any) -> None:
        """Write a text or a command, press Enter, and see what comes of it, or what sheet."""
        self.composer.focus()
        self.composer.fill(text)
        await self.settle()
        if self.app.view.entry.list_open:
            await self.press("escape")
        await self.press("enter", **seen)
        if sheet is not None:
            await self.until_sheet(sheet)

    async def ready(self) -> None:
        await self.until(lambda: self.session.models.ready is not None)

    def media(self, at: int = 0) -> tuple[MediaPart, ...]:
        return self.session.talk.messages[at].message.media

    async def sized(self, width: int, height: int) -> None:
        """Give the terminal another size, and wait until the screen has it."""
        await self.pilot.resize_terminal(width, height)
        await self.until(lambda: tuple(self.app.screen.size) == (width, height))

    def lines(self) -> list[list[Segment]]:
        """Return the lines that the screen shows, the screens behind it included."""
        compositor = self.app.screen._compositor
        update = compositor.render_update(full=True, screen_stack=self.app._background_screens)
        assert isinstance(update, LayoutUpdate)
        return [[segment for strip in line for segment in strip] for line in update.strips]

    def text(self) -> str:
        """Return the text of `lines`."""
        lines = ("".join(segment.text for segment in line) for line in self.lines())
        return "\n".join(line.rstrip() for line in lines)


async def _until_idle() -> None:
    """Wait until nothing on the loop could go on at once, three turns in a row."""
    loop, calm = asyncio.get_running_loop(), 0
    end_s = loop.time() + PATIENCE_S
    while calm < 3 and loop.time() < end_s:
        await asyncio.sleep(0)
        calm = 0 if loop._ready else calm + 1  # type: ignore[attr-defined]


def _has_to_draw(screen: Screen[object]) -> bool:
    return bool(
        screen._layout_required
        or screen._scroll_required
        or screen._repaint_required
        or screen._dirty_widgets
        or screen._callbacks
    )


def drive(
    doing: Callable[[Chat], Awaitable[None]],
    folder: Path,
    script: Mapping[str, Any] | None = None,
    *,
    size: tuple[int, int] = (80, 24),
    preferences: Preferences | None = None,
    pair: str | None = "toy",
    resume: int | None = None,
    load: LaunchOptions | None = None,
    tools: Callable[[Path], CallRunner] | None = None,
    ready: bool = False,
    engine: RemoteEngine | None = None,
) -> None:
    """Start the chat with its history in a folder, do something in it, and leave.

    Paths in the script are of files in the folder. Without a pair the chat chooses. `load` is loaded instead of the pair,
    `tools` returns what carries out calls in the working directory, and `engine` answers in place of the double.
    """
    work = folder / "work"
    work.mkdir(exist_ok=True)
    talk = SavedConversation(History(folder / "history"))
    engine = engine or RemoteEngine(command(_placed(script, folder)))
    calling = None if tools is None else tools(work)
    launch = load or LaunchOptions(pair=pair)
    session = Session(engine, talk, launch, ReplyOptions(), work, work=calling)
    if resume is not None:
        session.resume(resume)

    async def run() -> None:
        app = ChatApp(session, preferences)
        app.view.entry.composer.cursor_blink = False
        async with app.run_test(size=size) as pilot:
            chat = Chat(app, pilot)
            if ready:
                await chat.ready()
            await doing(chat)

    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("localspec.tui.app._AGAIN_S", PATIENCE_S)  # keys may come late
            asyncio.run(run())
    finally:
        session.close()


def _placed(script: Any, folder: Path) -> Any:
    """Return a script with its paths in a folder."""
    if isinstance(script, Mapping):
        return {name: _placed(each, folder) for name, each in script.items()}
    return str(folder / script) if isinstance(script, Path) else script


def driven(
    script: Mapping[str, Any] | None = None, *, ready: bool = True, **how: Any
) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Make a test of what is done in a chat, once it is ready; it may use fixtures, and the arguments are those of `drive`."""

    def decorate(doing: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        _chat, *own = inspect.signature(doing).parameters

        def test(**fixtures: Any) -> None:
            used = {name: fixtures[name] for name in own}
            folder = fixtures["tmp_path"]
            drive(lambda chat: doing(chat, **used), folder, script, ready=ready, **how)

        kind = inspect.Parameter.KEYWORD_ONLY
        names = dict.fromkeys([*own, "tmp_path"])
        signature = inspect.Signature([inspect.Parameter(name, kind) for name in names])
        vars(test)["__signature__"] = signature
        test.__name__, test.__module__ = doing.__name__, doing.__module__
        return test

    return decorate


async def assert_screen(chat: Chat, name: str) -> None:
    """See that the screen is as it was, at three sizes; LOCALSPEC_UPDATE_SCREENS=1 keeps how it is now instead."""
    for width, height in ((40, 12), (80, 24), (120, 40)):
        await chat.sized(width, height)
        file = SCREENS / f"{name}-{width}x{height}.txt"
        await _assert_kept(chat, file, lambda: chat.text().rstrip("\n") + "\n")


async def assert_picture(chat: Chat, name: str, height: int = 24) -> None:
    """See that the screen looks as its picture in the documents, colours included; drawn again like the texts of `assert_screen`.

    What Textual draws is text at places with colours, and depends on no font and no machine. Only the name that
    it gives to the picture, and the addresses of the fonts that it recommends, are left out.
    """
    await chat.sized(80, height)
    await _assert_kept(chat, PICTURES / f"{name}.svg", lambda: _picture(chat.app))


def _picture(app: ChatApp) -> str:
    drawn = app.export_screenshot(title="localspec")
    drawn = re.sub(r"terminal-\d+", "terminal", drawn)
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)
    return "\n".join(line.rstrip() for line in drawn.splitlines()) + "\n"


async def _assert_kept(chat: Chat, path: Path, shown: Callable[[], str]) -> None:
    """See that something comes to look as it was kept, which a busy machine may take a while for."""
    await chat.pilot.pause(0.15)
    loop = asyncio.get_running_loop()
    end_s = loop.time() + 10.0
    while path.exists() and shown() != path.read_text(encoding="utf-8") and loop.time() < end_s:
        await chat.pilot.pause(0.15)
    if os.environ.get("LOCALSPEC_UPDATE_SCREENS"):
        path.write_text(shown(), encoding="utf-8")
    assert shown() == path.read_text(encoding="utf-8"), shown()
