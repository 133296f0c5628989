"""The first frame is, cell for cell, what Textual then draws: at many sizes, in both themes, with few colours and with none."""

import asyncio
import re
import time
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import pytest
from rich.color import Color, ColorSystem
from rich.style import Style
from textual._compositor import LayoutUpdate
from textual.pilot import Pilot

from localspec.engine.client import EngineClient
from localspec.history.archive import History
from localspec.options import LaunchOptions, ReplyOptions
from localspec.ui.app import ChatApp
from localspec.ui.colours import DARK, LIGHT
from localspec.ui.feed import Feed
from localspec.ui.first_frame import _DARK, _LIGHT, _of_256, depth_of, first_frame
from localspec.ui.session import Session
from localspec.ui.talk import Talk

SIZES = ((40, 12), (46, 13), (57, 14), (58, 14), (110, 30))
_RUN = re.compile(r"\x1b\[([0-9;]+)m([^\x1b]*)")

Cell = tuple[str, bool, bool, str | None, str | None]
"""A letter, whether it is bold and whether reversed, its colour and the one behind it; of a blank only that."""


def cell(letter: str, bold: bool, reverse: bool, ink: str | None, paper: str | None) -> Cell:
    blank = letter == " " and not reverse
    return (letter, bold and not blank, reverse, None if blank else ink, paper)


def painted(frame: str) -> list[list[Cell]]:
    """Return the cells that a terminal would show."""
    rows = []
    for line in frame.removeprefix("\x1b[H").split("\r\n"):
        row = []
        for marks, text in _RUN.findall(line):
            found = re.findall(r"([34])8;2;(\d+);(\d+);(\d+)", marks)
            colours = {side: f"#{bytes(map(int, rgb)).hex()}" for side, *rgb in found}
            plain = re.sub(r"[34]8;2;\d+;\d+;\d+", "", marks).split(";")
            row += [
                cell(each, "1" in plain, "7" in plain, colours.get("3"), colours.get("4"))
                for each in text
            ]
        rows.append(row)
    return rows


def drawn(app: ChatApp) -> list[list[Cell]]:
    """Return the cells that Textual shows."""

    update = app.screen._compositor.render_update(full=True)
    assert isinstance(update, LayoutUpdate)

    def cells() -> Iterator[list[Cell]]:
        for strips in update.strips:
            row = []
            for part in (part for strip in strips for part in strip):
                style = part.style or Style()
                ink, paper = (
                    None if each is None or each.triplet is None else each.triplet.hex
                    for each in (style.color, style.bgcolor)
                )
                row += [
                    cell(each, bool(style.bold), bool(style.reverse), ink, paper)
                    for each in part.text
                ]
            yield row

    return list(cells())


@pytest.mark.parametrize("no_color", [False, True])
def test_it_is_what_textual_draws_then(
    no_color: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Feed, "start", lambda _: None)
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    options = LaunchOptions(pair="toy"), ReplyOptions()
    session = Session(EngineClient(), Talk(History(tmp_path)), *options, tmp_path)

    async def compare(app: ChatApp, pilot: Pilot[None], dark: bool) -> None:
        app.theme = DARK if dark else LIGHT
        for columns, rows in SIZES:
            await pilot.resize_terminal(columns, rows)
            while tuple(app.screen.size) != (columns, rows):
                await pilot.pause(0.02)
            await pilot.pause(0.02)
            frame = painted(first_frame(columns, rows, dark=dark, depth=1 if no_color else 1 << 24))
            end_s = time.monotonic() + 20
            while frame != drawn(app) and time.monotonic() < end_s:  # it may be drawn later
                await pilot.pause(0.05)
            differ = [each for each in zip_longest(frame, drawn(app)) if each[0] != each[1]]
            assert not differ, (columns, rows, app.theme, differ)

    async def look() -> None:
        app = ChatApp(session)
        async with app.run_test(size=SIZES[0]) as pilot:
            for dark in (True,) if no_color else (True, False):
                await compare(app, pilot, dark)

    asyncio.run(look())
    session.talk.history.close()


def test_256_colours_are_the_nearest_as_rich_has_them() -> None:
    for pair in (*_DARK.values(), *_LIGHT.values()):
        for each in pair:
            rgb = tuple(bytes.fromhex(each))
            expected = Color.from_rgb(*rgb).downgrade(ColorSystem.EIGHT_BIT).number
            assert _of_256(rgb) == expected
    frame = first_frame(80, 24, dark=True, depth=256)
    assert "48;5;" in frame
    assert "48;2;" not in frame


def test_a_screen_that_is_too_small_has_none() -> None:
    assert first_frame(39, 24, dark=True, depth=1) == first_frame(80, 11, dark=True, depth=1) == ""


@pytest.mark.parametrize(
    ("variables", "depth"),
    [
        ({"COLORTERM": "truecolor", "TERM": "xterm"}, 1 << 24),
        ({"TERM": "xterm-256color"}, 256),
        ({"TERM": "xterm-256color", "COLORTERM": "24bit", "NO_COLOR": "1"}, 1),
        ({"TERM": "linux"}, None),
    ],
)
def test_the_environment_says_how_many_colours_there_are(
    variables: dict[str, str], depth: int | None
) -> None:
    assert depth_of(variables) == depth
