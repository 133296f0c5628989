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
from textual import events
from textual._compositor import LayoutUpdate
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widget import Widget

from localspec.engine.engine import RemoteEngine
from localspec.history.archive import History
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
SIZES = ((40, 12), (80, 24), (120, 40))
PICTURE_SIZE = (80, 24)
_DRAWN_S = 10.0
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

    async def until_text(self, *texts: str) -> None:
        """Wait until the screen shows texts, wherever its lines end."""
        await self.until(lambda: all(each in self.text() or each in self.line for each in texts))

    async def until_sheet(self, kind: type[object], key: str = "") -> None:
        """Press a key, and wait for a screen."""
        await self.press(*[key] * bool(key))
        await self.until(lambda: isinstance(self.app.screen, kind))

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

    async def press(self, *keys: str, **seen: Any) -> None:
        await self.pilot.press(*keys)
        await self.settle()
        self.see(**seen)

    def see(
        self, shows: str | Sequence[str] = (), lacks: str = "", typed: str | None = None
    ) -> None:
        """See that the screen shows texts, wherever its lines end, and lacks one, and what the composer has."""
        texts = [shows] if isinstance(shows, str) else shows
        missing = [each for each in texts if each not in self.text() and each not in self.line]
        assert not missing, (missing, self.text())
        assert not lacks or lacks not in self.line, (lacks, self.text())
        assert typed is None or self.composer.text == typed

    async def click(self, widget: Widget | None = None, at: tuple[int, int] = (0, 0)) -> None:
        await self.pilot.click(widget, offset=at)
        await self.settle()

    def let(self, name: str) -> None:
        """Make the file that the script waits for."""
        (self.session.folder.parent / name).touch()

    async def type(self, text: str) -> None:
        """Paste a text into the composer: quicker than its keys one by one."""
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

    async def run(self, text: str, **seen: Any) -> None:
        """Write a text or a command, press Enter, and see what comes of it."""
        self.composer.focus()
        self.composer.fill(text)
        await self.settle()
        if self.app.view.entry.list_open:
            await self.press("escape")
        await self.press("enter", **seen)

    async def ready(self) -> None:
        await self.until(lambda: self.session.models.ready is not None)

    async def sized(self, width: int, height: int) -> None:
        """Give the terminal another size, and wait until the screen has it."""
        await self.pilot.resize_terminal(width, height)
        await self.until(lambda: tuple(self.app.screen.size) == (width, height))

    def text(self) -> str:
        """Return what the screen shows, the screens behind it included."""
        compositor = self.app.screen._compositor
        update = compositor.render_update(full=True, screen_stack=self.app._background_screens)
        assert isinstance(update, LayoutUpdate)
        lines = ("".join(strip.text for strip in line) for line in update.strips)
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
    engine: RemoteEngine | None = None,
    tools: Callable[[Path], CallRunner] | None = None,
) -> None:
    """Start the chat, do something in it, and leave.

    Args:
        doing: what is done.
        folder: where history and working directory are.
        script: of the engine double; a path in it is of a file in the folder.
        size: columns and rows.
        preferences: of the user.
        pair: what is loaded; None leaves it to the chat.
        resume: the conversation to take up.
        load: what is loaded, instead of the pair.
        engine: answers, instead of the double.
        tools: returns what carries out calls in the working directory; None where nothing may be called.
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
            await doing(Chat(app, pilot))

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
    script: Mapping[str, Any] | None = None, **how: Any
) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Make a test of what is done in a chat, which may use fixtures, too; the arguments are those of `drive`."""

    def decorate(doing: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        _chat, *parameters = inspect.signature(doing).parameters.values()
        own = [each.name for each in parameters]

        def test(**fixtures: Any) -> None:
            used = {name: fixtures[name] for name in own}
            drive(lambda chat: doing(chat, **used), fixtures["tmp_path"], script, **how)

        if "tmp_path" not in own:
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters.append(inspect.Parameter("tmp_path", kind, annotation=Path))
        keyword = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
        vars(test)["__signature__"] = inspect.Signature(keyword)
        test.__name__, test.__module__ = doing.__name__, doing.__module__
        return test

    return decorate


async def assert_screen(chat: Chat, name: str) -> None:
    """See that the screen is as it was, at three sizes; LOCALSPEC_UPDATE_SCREENS=1 keeps how it is now instead."""
    for width, height in SIZES:
        await chat.sized(width, height)
        file = f"{name}-{width}x{height}.txt"
        await _assert_kept(chat, file, lambda: chat.text().rstrip("\n") + "\n")


async def assert_picture(chat: Chat, name: str) -> None:
    """See that the screen looks as it did, colours included; kept anew like the texts of `assert_screen`.

    What Textual draws is text at places with colours, and depends on no font and no machine. Only the name that
    it gives to the picture, and the addresses of the fonts that it recommends, are left out.
    """
    await chat.sized(*PICTURE_SIZE)
    await _assert_kept(chat, f"{name}.svg", lambda: _picture(chat.app))


def _picture(app: ChatApp) -> str:
    drawn = app.export_screenshot(title="localspec")
    drawn = re.sub(r"terminal-\d+", "terminal", drawn)
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)
    return "\n".join(line.rstrip() for line in drawn.splitlines()) + "\n"


async def _assert_kept(chat: Chat, name: str, shown: Callable[[], str]) -> None:
    """See that something comes to look as it was kept, which a busy machine may take a while for."""
    await chat.pilot.pause(0.15)
    loop, path = asyncio.get_running_loop(), SCREENS / name
    end_s = loop.time() + _DRAWN_S
    while path.exists() and shown() != path.read_text(encoding="utf-8") and loop.time() < end_s:
        await chat.pilot.pause(0.15)
    if os.environ.get("LOCALSPEC_UPDATE_SCREENS"):
        path.write_text(shown(), encoding="utf-8")
    assert shown() == path.read_text(encoding="utf-8"), shown()
