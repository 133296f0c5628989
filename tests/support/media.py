"""Twenty pictures and ten sounds, the same in every run."""

import io
import math
import wave
from functools import cache
from random import Random

import numpy as np
from PIL import Image, ImageDraw

_SIZES = (
    *(
        (1, 1),
        (2, 2),
        (3, 40),
        (64, 64),
        (640, 480),
        (480, 640),
        (2000, 300),
        (120, 900),
        (333, 77),
    ),
    *((512, 512), (100, 100), (255, 257), (800, 600), (31, 33), (1024, 768), (96, 32)),
    *((200, 200), (640, 360), (57, 57), (300, 300)),
)
_MODES = {3: "L", 7: "P", 9: "RGBA", 11: "1", 13: "LA", 15: "I;16"}
"""Of some pictures, by number; the others have three colours."""
_SOUNDS = (
    *((0.1, 16_000, 1), (0.5, 8_000, 1), (1.0, 44_100, 2), (2.5, 48_000, 1), (3.3, 22_050, 2)),
    *((5.0, 11_025, 1), (10.0, 16_000, 2), (29.9, 8_000, 1), (31.0, 16_000, 1), (40.0, 24_000, 2)),
)
"""Seconds, samples a second, and channels."""


@cache
def picture_file(number: int, form: str = "PNG") -> bytes:
    """Return a picture as a file: shapes, noise like a photo's, or a gradient, in turn."""
    width, height = _SIZES[number]
    image = (_shapes, _noise, _gradient)[number % 3](width, height, Random(number))
    mode = _MODES.get(number, "RGB") if form == "PNG" else "RGB"
    if mode == "I;16":
        image = Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257)
    file = io.BytesIO()
    (image if mode == "I;16" else image.convert(mode)).save(file, form)
    return file.getvalue()


@cache
def sound_file(number: int) -> bytes:
    """Return a sound as a WAV file: two tones that glide, and noise."""
    seconds, rate, channels = _SOUNDS[number]
    times = np.arange(int(seconds * rate)) / rate
    random, file = np.random.default_rng(number), io.BytesIO()
    samples = np.stack([
        0.4 * np.sin(2 * math.pi * (110 * 2 ** (number % 5) + 40 * channel + 30 * times) * times)
        + random.normal(0, 0.02 * (number % 3), len(times))
        for channel in range(channels)
    ], axis=1)  # fmt: skip
    with wave.open(file, "wb") as sound:
        sound.setnchannels(channels)
        sound.setsampwidth(2)
        sound.setframerate(rate)
        sound.writeframes((samples.clip(-1, 1) * 32767).astype("<i2").tobytes())
    return file.getvalue()


def _shapes(width: int, height: int, chance: Random) -> Image.Image:
    image = Image.new("RGB", (width, height), _colour(chance))
    draw = ImageDraw.Draw(image)
    for _ in range(12):
        xs, ys = (sorted(chance.choices(range(side), k=2)) for side in (width, height))
        box = (xs[0], ys[0], xs[1], ys[1])
        chance.choice((draw.ellipse, draw.rectangle, draw.line))(box, _colour(chance))
    return image


def _noise(width: int, height: int, chance: Random) -> Image.Image:
    small = (width // 8 + 1, height // 8 + 1)
    coarse = Image.frombytes("RGB", small, chance.randbytes(3 * small[0] * small[1]))
    fine = Image.frombytes("RGB", (width, height), chance.randbytes(3 * width * height))
    return Image.blend(coarse.resize((width, height), Image.Resampling.BICUBIC), fine, 0.2)


def _gradient(width: int, height: int, chance: Random) -> Image.Image:
    ends = [np.array(_colour(chance), float) for _ in range(4)]
    x, y = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    x, y = x[..., None], y[..., None]
    top, bottom = ends[0] * (1 - x) + ends[1] * x, ends[2] * (1 - x) + ends[3] * x
    return Image.fromarray((top * (1 - y) + bottom * y).astype(np.uint8))


def _colour(chance: Random) -> tuple[int, int, int]:
    red, green, blue = chance.randbytes(3)
    return red, green, blue


PICTURES, SOUNDS = len(_SIZES), len(_SOUNDS)
