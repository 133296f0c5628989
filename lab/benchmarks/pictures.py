"""Makes the pictures of the guides: a real conversation, its stats, token lens, a race and the picker, as the program draws them.

    python -m lab.benchmarks.pictures [--pair NAME] [--threads N] FOLDER

Real weights, the real engine and the real screens; only the terminal is missing. Figures in the
pictures are those of the machine that it runs on. `chat.svg`, `lens.svg` and `race.svg` are for the
guides; in `pictures/` are the same screens at several sizes, dark, light and without colours.
"""

import argparse
import asyncio
import os
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

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
from localspec.ui.talk import Talk

SIZE = (120, 34)
SIZES = ((80, 24), (120, 40), (200, 50))
# More would be many megabytes of nearly the same.
LOOKS = ((DARK, SIZES), (LIGHT, SIZES[1:2]))
WITHOUT_COLOURS = SIZES[:1]
LARGE = {"conversation", "stats"}
GUIDES = {"stats": "chat", "lens": "lens", "race": "race"}
QUESTION = """\
Add a docstring to this function and return the code:

def moving_average(values, width):
    total = sum(values[:width])
    averages = [total / width]
    for old, new in zip(values, values[width:]):
        total += new - old
        averages.append(total / width)
    return averages"""
PATIENCE_S = 600.0


async def until(pilot: Pilot[None], holds: Callable[[], object]) -> None:
    """Wait until something holds."""
    end_s = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > end_s:
            raise TimeoutError
        await pilot.pause(0.1)
    await pilot.pause(0.5)


def save(app: ChatApp, file: Path) -> None:
    """Keep what is seen, without the fonts that Textual recommends."""
    drawn = app.export_screenshot(title="localspec")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL))


async def draw(
    app: ChatApp, folder: Path, guides: bool, looks: Sequence[tuple[str, Sequence[tuple[int, int]]]]
) -> None:
    """Talk, and keep what is seen.

    Args:
        app: the chat.
        folder: gets the pictures.
        guides: whether those of the guides are made, too.
        looks: themes, and sizes in each.
    """
    session = app.session
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: session.state.ready is not None)
        app.view.tell("")
        app.view.entry.composer.fill(QUESTION)
        await pilot.press("enter")
        await until(pilot, lambda: len(session.talk.messages) == 2 and not session.busy)

        async def keep(name: str) -> None:
            if guides and name in GUIDES:
                app.theme = DARK
                await pilot.resize_terminal(*SIZE)
                await pilot.pause(1.0)
                save(app, folder / f"{GUIDES[name]}.svg")
            for look, sizes in looks:
                app.theme = look or DARK
                for width, height in sizes:
                    if (width, height) == SIZES[-1] and name not in LARGE:
                        continue
                    await pilot.resize_terminal(width, height)
                    await pilot.pause(1.0)
                    at = f"{name}-{width}x{height}-{look or 'mono'}.svg"
                    save(app, folder / "pictures" / at)

        await keep("conversation")
        await pilot.press("f2")
        await keep("stats")
        await pilot.press("f2", "f3")
        await until(pilot, lambda: isinstance(app.screen, LensSheet))
        await keep("lens")
        await pilot.press("escape")
        app.push_screen(RaceSheet(session.asking.start_race()))
        await until(pilot, lambda: session.race is not None and session.race.done)
        await keep("race")
        print(session.race.verdict() if session.race else "")
        await pilot.press("escape")
        await until(pilot, lambda: len(app.screen_stack) == 1)
        await pilot.press("f8")
        await until(pilot, lambda: isinstance(app.screen, Picker))
        await pilot.pause(3.0)
        await keep("picker")


def main() -> None:
    """Read the command line, and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pair", default="qwen2.5-coder-1.5b")
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    os.environ.pop("NO_COLOR", None)
    _talk(arguments, guides=True, looks=LOOKS)
    os.environ["NO_COLOR"] = "1"
    _talk(arguments, guides=False, looks=[("", WITHOUT_COLOURS)])


def _talk(
    arguments: argparse.Namespace,
    guides: bool,
    looks: Sequence[tuple[str, Sequence[tuple[int, int]]]],
) -> None:
    with tempfile.TemporaryDirectory() as kept:
        load = LaunchOptions(pair=arguments.pair, load=LoadOptions(threads=arguments.threads))
        options = ReplyOptions(SamplingParams(temperature=0), max_tokens=160)
        talk = Talk(History(Path(kept)))
        session = Session(EngineClient(), talk, load, options, Path(kept))
        try:
            asyncio.run(draw(ChatApp(session), arguments.folder, guides, looks))
        finally:
            session.close()


if __name__ == "__main__":
    main()
