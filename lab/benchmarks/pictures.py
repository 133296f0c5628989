"""Makes the pictures of the guides: real conversations on the real screens; only the terminal is missing.

    python -m lab.benchmarks.pictures [--pair NAME] [--threads N] guides FOLDER
    python -m lab.benchmarks.pictures [--pair NAME] [--threads N] [--single] [--only NAME ...] all FOLDER

`guides` draws `chat.svg`, `lens.svg` and `race.svg`. `all` paints a sheet for every screen: three sizes, dark,
light and without colours; `--single` every picture by itself, too, and larger. Needs Pillow for that.
Weights and engine are real, so figures in the pictures are those of the machine that it runs on.
"""

import argparse
import asyncio
import os
import re
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.segment import Segment
from textual.pilot import Pilot

from localspec.engine.client import EngineClient
from localspec.history.archive import History
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from localspec.ui.app import ChatApp
from localspec.ui.colours import DARK, LIGHT
from localspec.ui.lens_sheet import LensSheet
from localspec.ui.picker import Picker
from localspec.ui.race_sheet import RaceSheet
from localspec.ui.session import Session
from localspec.ui.sheets import ListSheet, TextSheet
from localspec.ui.talk import Talk

if TYPE_CHECKING:
    from lab.painting import Ground

SIZE = (120, 34)
SIZES = ((80, 24), (120, 40), (200, 50))
MONO = "no colour"
LOOKS = (DARK, LIGHT, MONO)
GUIDES = {"stats": "chat", "lens": "lens", "race": "race"}
SMALL, LARGE = 10, 18
BEFORE = ("Name three rivers in Europe.", "What is a prime number?")
QUESTION = """\
Repeat this Python function, unchanged, in a code block:

def moving_average(values, width):
    total = sum(values[:width])
    averages = [total / width]
    for old, new in zip(values, values[width:]):
        total += new - old
        averages.append(total / width)
    return averages"""
TOO_LONG = "The telescope has a mirror of 3.6 metres, made of a single piece of glass ceramic. "
PATIENCE_S = 600.0
STILL_S = 0.15

Keep = Callable[[ChatApp, Pilot[None], str], Awaitable[None]]


async def until(pilot: Pilot[None], holds: Callable[[], object]) -> None:
    """Wait until something holds."""
    end_s = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > end_s:
            raise TimeoutError
        await pilot.pause(0.1)
    await pilot.pause(STILL_S)


async def walk(app: ChatApp, keep: Keep) -> None:
    """Talk, and go from screen to screen.

    Args:
        app: the chat.
        keep: is called on each, with its name.
    """
    session = app.session

    async def ask(text: str) -> None:
        app.view.entry.composer.fill(text)
        await pilot.press("enter")
        await until(pilot, lambda: len(session.talk.messages) == 2 and not session.busy)

    async def sheet(keys: Sequence[str], kind: type[object], name: str) -> None:
        await pilot.press(*keys)
        await until(pilot, lambda: isinstance(app.screen, kind))
        await keep(app, pilot, name)
        await pilot.press("escape")
        await until(pilot, lambda: len(app.screen_stack) == 1)

    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: session.state.ready is not None)
        app.view.tell("")
        await keep(app, pilot, "start")
        await pilot.press("slash")
        await keep(app, pilot, "commands")
        await pilot.press("escape", "ctrl+c")
        for each in BEFORE:
            session.set("max_tokens", "24")
            await ask(each)
            await pilot.press("ctrl+n")
        session.set("max_tokens", "160")
        await ask(QUESTION)
        await keep(app, pilot, "conversation")
        await pilot.press("f2")
        await keep(app, pilot, "stats")
        await pilot.press("f2")
        await sheet(["f3"], LensSheet, "lens")
        app.push_screen(RaceSheet(session.asking.start_race()))
        await until(pilot, lambda: session.race is not None and session.race.done)
        print(session.race.verdict() if session.race else "")
        await sheet([], RaceSheet, "race")
        await pilot.press("shift+tab")
        await keep(app, pilot, "message")
        await pilot.press("escape")
        await sheet(["f1"], TextSheet, "keys")
        await sheet(["f4"], ListSheet, "settings")
        await sheet(["f7"], ListSheet, "history")
        await pilot.press("f8")
        await pilot.pause(3.0)  # it measures
        await sheet([], Picker, "models")
        app.push_screen(Picker("", first=True))
        await pilot.pause(3.0)
        await sheet([], Picker, "first-run")
        n_ctx = session.state.ready.n_ctx if session.state.ready else 0
        app.view.entry.composer.fill(TOO_LONG * (n_ctx // 16))
        await pilot.press("enter")
        await sheet([], ListSheet, "full")


def save_svg(folder: Path) -> Keep:
    """Return what keeps the pictures of the guides, without the fonts that Textual recommends."""

    async def keep(app: ChatApp, pilot: Pilot[None], name: str) -> None:
        if name in GUIDES:
            await pilot.pause(STILL_S)
            drawn = app.export_screenshot(title="localspec")
            drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)
            (folder / f"{GUIDES[name]}.svg").write_text(drawn)

    return keep


class Album:
    """Screens as lines, by name, look and size.

    Args:
        folder: gets the pictures.
        only: names of screens; empty takes all.
        single: whether every picture is kept by itself, too.
    """

    def __init__(self, folder: Path, only: Sequence[str], *, single: bool) -> None:
        self._folder, self._only, self._single = folder, only, single
        self._taken: dict[str, dict[tuple[str, int, int], list[list[Segment]]]] = {}

    def taking(self, looks: Sequence[str]) -> Keep:
        """Return what keeps a screen in all sizes, and in some looks."""
        from lab.painting import lines_of, painted

        async def keep(app: ChatApp, pilot: Pilot[None], name: str) -> None:
            if self._only and name not in self._only:
                return
            for look in looks:
                app.theme = DARK if look == MONO else look
                for width, height in SIZES:
                    await pilot.resize_terminal(width, height)
                    await until(pilot, lambda: app.size == (width, height))  # noqa: B023 - it waits here
                    lines = lines_of(app)
                    self._taken.setdefault(name, {})[look, width, height] = lines
                    if self._single:
                        at = f"{name}-{width}x{height}-{look.replace(' ', '-')}.png"
                        painted(lines, _ground(look), LARGE).save(self._folder / at)
            app.theme = DARK
            await pilot.resize_terminal(*SIZE)

        return keep

    def save(self) -> None:
        """Paint the sheets."""
        from lab.painting import painted, sheet

        for name, taken in self._taken.items():
            rows = [
                [
                    (
                        f"{name} · {look} · {width} x {height}",
                        painted(taken[look, width, height], _ground(look), SMALL),
                    )
                    for width, height in SIZES
                ]
                for look in LOOKS
            ]
            sheet(rows).save(self._folder / f"{name}.png")


def _ground(look: str) -> "Ground":
    from lab.painting import BLACK, Ground

    return Ground((31, 35, 40), (252, 252, 250)) if look == LIGHT else BLACK


def main() -> None:
    """Read the command line, and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["guides", "all"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pair", default="qwen2.5-coder-1.5b")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--single", action="store_true")
    parser.add_argument("--only", nargs="+", default=[])
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    os.environ.pop("NO_COLOR", None)
    if arguments.what == "guides":
        _talk(arguments, save_svg(arguments.folder))
        return
    album = Album(arguments.folder, arguments.only, single=arguments.single)
    _talk(arguments, album.taking([DARK, LIGHT]))
    os.environ["NO_COLOR"] = "1"
    _talk(arguments, album.taking([MONO]))
    album.save()


def _talk(arguments: argparse.Namespace, keep: Keep) -> None:
    with tempfile.TemporaryDirectory() as kept:
        load = LaunchOptions(pair=arguments.pair, load=LoadOptions(threads=arguments.threads))
        options = ReplyOptions(SamplingParams(temperature=0), max_tokens=160)
        talk = Talk(History(Path(kept)))
        session = Session(EngineClient(), talk, load, options, Path(kept))
        try:
            asyncio.run(walk(ChatApp(session), keep))
        finally:
            session.close()


if __name__ == "__main__":
    main()
