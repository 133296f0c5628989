"""Makes the pictures of the README: a real conversation, its token lens and a race, as the program draws them.

    python -m lab.benchmarks.pictures [--pair NAME] [--threads N] FOLDER

Real weights, the real engine and the real screens; only the terminal is missing. Figures in the
pictures are those of the machine that it runs on.
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from textual.pilot import Pilot

from localspec.engine.client import EngineClient
from localspec.history.archive import History
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from localspec.ui.app import ChatApp
from localspec.ui.session import Session
from localspec.ui.sheets import TextSheet
from localspec.ui.talk import Talk

SIZE = (92, 32)
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


async def until(pilot: "Pilot[None]", holds: object) -> None:
    """Wait until something holds."""
    end_s = time.monotonic() + PATIENCE_S
    while not holds():  # type: ignore[operator]
        if time.monotonic() > end_s:
            raise TimeoutError
        await pilot.pause(0.1)
    await pilot.pause(0.5)


async def draw(app: ChatApp, folder: Path) -> None:
    """Talk, and keep what is seen."""
    session = app.session
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: session.state.ready is not None)
        app.view.entry.composer.fill(QUESTION)
        await pilot.press("enter")
        await until(pilot, lambda: len(session.talk.messages) == 2 and not session.busy)
        await pilot.press("f2")
        await pilot.pause(0.5)
        app.save_screenshot("chat.svg", str(folder))
        await pilot.press("f2", "f3")
        await until(pilot, lambda: isinstance(app.screen, TextSheet))
        app.save_screenshot("lens.svg", str(folder))
        await pilot.press("escape")
        app.view.entry.composer.fill("/race")
        await pilot.pause(0.2)
        await pilot.press("escape", "enter")
        await until(pilot, lambda: session.race is not None and session.race.done)
        app.save_screenshot("race.svg", str(folder))
        print(session.race.verdict() if session.race else "")


def main() -> None:
    """Read the command line, and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pair", default="qwen2.5-coder-1.5b")
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as kept:
        load = LaunchOptions(pair=arguments.pair, load=LoadOptions(threads=arguments.threads))
        options = ReplyOptions(SamplingParams(temperature=0), max_tokens=160)
        talk = Talk(History(Path(kept)))
        session = Session(EngineClient(), talk, load, options, Path(kept))
        try:
            asyncio.run(draw(ChatApp(session), arguments.folder))
        finally:
            session.close()


if __name__ == "__main__":
    main()
