"""A moving picture of the chat: the real program in a terminal of its own, typed at as a user would.

    pip install pyte pillow
    python -m lab.moving_picture docs/chat.gif [--model qwen2.5-coder-1.5b] [--font PATH/DejaVuSansMono.ttf] [KEYS ...]

KEYS are typed one after the other: `=text` types a text, `@text` waits until the screen shows it, `~3` records three
seconds, anything else is the name of a key. By default a question about a file is asked while the statistics are open.
"""

import argparse
import sys
import time
from pathlib import Path

import pyte
from PIL import Image, ImageDraw, ImageFont

from tests.tui.terminal import Terminal

COLUMNS, ROWS, FRAME_S = 120, 40, 0.25
KEYS = {
    "enter": "\r",
    "f2": "\x1bOQ",
    "escape": "\x1b",
    "tab": "\t",
    "down": "\x1b[B",
    "up": "\x1b[A",
}
SCENE = (
    *("@context", "~1", "f2", "~1"),
    *("=Add type hints to this file: @docs/examples/stats.py ", "~1", "enter", "@tokens/s", "~2"),
)
NAMED = {
    "black": "1c1c1c",
    "red": "cc5555",
    "green": "55aa55",
    "brown": "ccaa44",
    "blue": "5588cc",
    "magenta": "aa66aa",
    "cyan": "55aaaa",
    "white": "dddddd",
}


class Recorder:
    """A program in a terminal, and a frame of its screen for every quarter of a second that it was looked at.

    Args:
        command: of the program.
        font: of the cells; all of one width.
    """

    def __init__(self, command: list[str], font: Path) -> None:
        self._screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self._screen)
        self._font = ImageFont.truetype(str(font), 13)
        self._cell = (round(self._font.getlength("M")), 16)
        self.terminal = Terminal(*command, COLORTERM="truecolor")
        self.frames: list[list[list[tuple[str, str, str, bool]]]] = []

    def record(self, seconds: float, until: str | None = None) -> None:
        """Record for so long, or until the screen shows a text."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            next_s = time.monotonic() + FRAME_S
            while (left_s := next_s - time.monotonic()) > 0:
                self._stream.feed(self.terminal.read(left_s))
            self.frames.append(self._cells())
            if until is not None and any(until in line for line in self._screen.display):
                return

    def _cells(self):
        return [[(c.data, c.fg, c.bg, c.reverse) for c in (self._screen.buffer[row][column] for column in range(COLUMNS))] for row in range(ROWS)]

    def _frame(self, cells) -> Image.Image:
        width, height = self._cell
        image = Image.new("RGB", (COLUMNS * width, ROWS * height), "#1c1c1c")
        draw = ImageDraw.Draw(image)
        for row in range(ROWS):
            for column in range(COLUMNS):
                data, fg, bg, reverse = cells[row][column]
                colours = [_colour(fg, "dddddd"), _colour(bg, "1c1c1c")]
                front, back = reversed(colours) if reverse else colours
                at = (column * width, row * height)
                draw.rectangle((*at, at[0] + width, at[1] + height), fill=back)
                if data.strip():
                    draw.text(at, data, font=self._font, fill=front)
        return image

    def save(self, path: Path) -> None:
        """Write the frames as a GIF, those that are alike as one that lasts longer."""
        lasting = []
        for frame in self.frames:
            if lasting and frame == lasting[-1][0]:
                lasting[-1] = (frame, lasting[-1][1] + round(1000 * FRAME_S))
            else:
                lasting.append((frame, round(1000 * FRAME_S)))
        images = [self._frame(frame).quantize(32) for frame, _ in lasting]
        durations = [duration for _, duration in lasting]
        images[0].save(path, save_all=True, append_images=images[1:], duration=durations, loop=0)


def _colour(name: str, default: str) -> str:
    return f"#{default if name == 'default' else NAMED.get(name.removeprefix('bright'), name)}"


def main() -> None:
    """Type, and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("keys", nargs="*", default=SCENE)
    parser.add_argument("--model", default="qwen2.5-coder-1.5b")
    font = "/usr/share/fonts/truetype/dejavu/DejaVuSansMono.ttf"
    parser.add_argument("--font", type=Path, default=Path(font))
    flags = parser.parse_args()
    command = [sys.executable, "-m", "localspec", "chat", flags.model, "--temperature", "0"]
    recorder = Recorder(command, flags.font)
    for key in flags.keys:
        match key[0], key[1:]:
            case "=", text:
                for each in text:
                    recorder.terminal.type(each)
                    recorder.record(FRAME_S / 3)
            case "@", text:
                recorder.record(180, until=text)
            case "~", seconds:
                recorder.record(float(seconds))
            case _:
                recorder.terminal.type(KEYS[key])
                recorder.record(FRAME_S)
    recorder.terminal.close()
    recorder.save(flags.out)
    print(f"{flags.out}: {len(recorder.frames)} frames, {flags.out.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
