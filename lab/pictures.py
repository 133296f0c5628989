"""Every picture of the documents, from today's program: `python -m lab.pictures`.

The screens and the page are drawn by the tests, which compare them from then on. The moving picture is recorded: a real chat
with a real model, whose answer streams in as fast as it did. `python -m lab.pictures chat` makes that one alone.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from xml.sax.saxutils import escape

from rich.segment import Segment

from localspec.engine.remote_engine import RemoteEngine
from localspec.storage.files import write_atomic
from tests.tui.driving import Chat, drive

ROOT = Path(__file__).parents[1]
MOVING = ROOT / "docs/pictures/chat.svg"
QUESTION = "Rename spread to deviation. Print the whole file, and nothing else:"
SIZE = 84, 32
_MODEL, _FRAME_S, _LAST_S = "qwen2.5-coder-1.5b", 0.25, 8.0
_CELL, _LINE, _MARGIN = 8.4, 18, 8
_BACK, _FRONT = "#121212", "#e0e0e0"
_TESTS = "tests/tui/test_screens.py", "tests/plugins/serve/test_page.py"

Screen = tuple[str, ...]
"""The lines of a screen, each as elements of SVG."""


def record() -> list[tuple[Screen, float]]:
    """Chat as a user would, and return what the screen showed, and for how many seconds each."""
    frames: list[tuple[Screen, float]] = []

    async def chat_for_a_while(chat: Chat) -> None:
        async def frame() -> None:
            drawn = _drawn(chat)
            if not frames or frames[-1][0] != drawn:
                frames.append((drawn, time.monotonic()))
            await chat.pilot.pause(_FRAME_S)

        chat.session.settings.set("temperature", "0")
        file = (ROOT / "docs/examples/stats.py").read_text()
        await chat.ready()
        await chat.begin(f"{QUESTION}\n\n{file}")
        while chat.session.busy:
            await frame()
        for key in ((), ("f2",)):
            await chat.press(*key)
            await frame()
            await chat.pilot.pause(2)

    with tempfile.TemporaryDirectory() as folder:
        drive(chat_for_a_while, Path(folder), engine=RemoteEngine(), size=SIZE, pair=_MODEL)
    return [(screen, after - at) for (screen, at), (_, after) in pairwise(frames)] + [
        (frames[-1][0], _LAST_S)
    ]


def _drawn(chat: Chat) -> Screen:
    return tuple(_line_svg(each) for each in chat.lines())


def _line_svg(segments: Sequence[Segment]) -> str:
    """Return a line of the screen as elements of SVG: what is behind the letters, then the letters."""
    backs, texts, column = [], [], 0
    for text, style, _ in segments:
        front, back = _FRONT, _BACK
        width = Segment(text).cell_length
        if style is not None:
            colours = [each and each.get_truecolor().hex for each in (style.color, style.bgcolor)]
            front, back = colours[0] or _FRONT, colours[1] or _BACK
            if style.reverse:
                front, back = back, front
        x, length = f"{column * _CELL:.1f}", f"{width * _CELL:.1f}"
        if back != _BACK:
            backs.append(f'<rect x="{x}" width="{length}" height="{_LINE}" fill="{back}"/>')
        if text.strip():
            weight = ' font-weight="bold"' if style is not None and style.bold else ""
            texts.append(
                f'<text x="{x}" y="14" textLength="{length}" fill="{front}"{weight}>{escape(text)}</text>'
            )
        column += width
    return "".join(backs + texts)


def moving_svg(frames: Sequence[tuple[Screen, float]]) -> str:
    """Return frames as one SVG that plays them over and over; the last one where nothing may move.

    The frames stand side by side, and the strip of them moves on; a line that many have is there once.
    """
    lines = {
        each: f"l{at}" for at, each in enumerate(dict.fromkeys(e for s, _ in frames for e in s))
    }
    width = round(SIZE[0] * _CELL) + 2 * _MARGIN
    height = SIZE[1] * _LINE + 2 * _MARGIN
    begins_s = list(accumulate((seconds for _, seconds in frames), initial=0.0))
    steps = "".join(
        f"{100 * begin / begins_s[-1]:.3f}%{{transform:translateX({-at * width}px)}}"
        for at, begin in enumerate(begins_s[:-1])
    )
    last = -(len(frames) - 1) * width
    defined = "\n".join(f'<g id="{name}">{each}</g>' for each, name in lines.items())
    drawn = "\n".join(
        "".join(
            f'<use href="#{lines[each]}" x="{at * width + _MARGIN}" y="{row * _LINE + _MARGIN}"/>'
            for row, each in enumerate(screen)
            if each
        )
        for at, (screen, _) in enumerate(frames)
    )
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">
<style>
text {{ font: 14px "DejaVu Sans Mono", Menlo, Consolas, monospace; white-space: pre; }}
#strip {{ transform: translateX({last}px); }}
@media (prefers-reduced-motion: no-preference) {{ #strip {{ animation: play {begins_s[-1]:.2f}s step-end infinite; }} }}
@keyframes play {{ {steps} }}
</style>
<rect width="{width}" height="{height}" rx="6" fill="{_BACK}"/>
<defs>
{defined}
</defs>
<g id="strip">
{drawn}
</g>
</svg>
"""


def main() -> None:
    """Make the pictures."""
    if sys.argv[1:] != ["chat"]:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-m",
            "",
            "-k",
            "screens or picture",
            *_TESTS,
        ]
        subprocess.run(
            command, env={**os.environ, "LOCALSPEC_UPDATE_SCREENS": "1"}, cwd=ROOT, check=True
        )
    write_atomic(MOVING, moving_svg(record()).encode())


if __name__ == "__main__":
    main()
