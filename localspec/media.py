"""Pictures and sounds: what a file is by its first bytes, how large a picture may be, and its pixels."""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from localspec.display import printable_line
from localspec.errors import UsageError

if TYPE_CHECKING:
    from PIL import Image

MOST_BYTES = 32 << 20
"""Of one picture or sound."""
MOST_PIXELS = 64_000_000
"""Of one picture: more are a bomb, or a scan that an encoder would shrink to a thousandth."""
MOST_SECONDS = 3600
"""Of one sound."""
_MOST_RATIO = 200
"""Of a picture's sides: what is longer is no picture, and an encoder would make it a thousand times as large."""
_RATES = range(4000, 384_001)
"""Samples a second of a sound: fewer would make hours of few bytes when a decoder fills the gaps."""
_MOST_FRAMES = 1_000_000
"""Of an MP3 of `MOST_BYTES`."""
_MP3_KBPS = (
    (
        (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
        (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
        (0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    ),
    (
        (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
        (0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
        (0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448),
    ),
)
"""By whether a frame is of MPEG-1, by layer from III to I, and by the number in its header."""
_WAV_FORMS = (1, 3, 6, 7, 0xFFFE)
"""Numbers, floats, A-law, u-law, and what is described by more."""
_BEGINNINGS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"BM": "image/bmp",
    b"fLaC": "audio/flac",
    b"ID3": "audio/mpeg",
    b"\xff\xfb": "audio/mpeg",
    b"\xff\xf3": "audio/mpeg",
    b"\xff\xf2": "audio/mpeg",
}
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
_FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP")


def media_type(data: bytes) -> str:
    """Return the MIME type of a picture or a sound by its first bytes; empty for everything else."""
    if data[:4] == b"RIFF":
        return _RIFF.get(data[8:12], "")
    return next((kind for first, kind in _BEGINNINGS.items() if data.startswith(first)), "")


def media_kind(data: bytes) -> Literal["image", "audio"] | None:
    """Return whether a file is a picture or a sound by its first bytes; None for everything else."""
    kind = media_type(data)
    return "image" if kind.startswith("image/") else "audio" if kind else None


def checked_kind(data: bytes, name: str) -> Literal["image", "audio"]:
    """Return what a file is that is to go to a model.

    Args:
        data: the file.
        name: how the user calls it.

    Raises:
        UsageError: it is neither picture nor sound, or too large.
    """
    visible, kind = printable_line(name), media_kind(data)
    if kind is None:
        raise UsageError(
            f"{visible} is neither a picture nor a sound that can be read: "
            "give PNG, JPEG, GIF, BMP, WebP, WAV, MP3 or FLAC"
        )
    if len(data) > MOST_BYTES:
        raise UsageError(f"{visible} has {len(data)} bytes: give one of {MOST_BYTES} at most")
    if kind == "image":
        picture_size(data, name)
    return kind


_SENSES = {"image": ("pictures", "sees"), "audio": ("sounds", "hears")}


def why_not_taken(
    kind: Literal["image", "audio"], model: str, *, sees: bool, hears: bool, other: str | None
) -> str | None:
    """Return why a model cannot take a picture or a sound, with the `other` model that can; None where it takes it."""
    if sees if kind == "image" else hears:
        return None
    things, verb = _SENSES[kind]
    why = f"takes no {things}" if sees or hears else "reads text only"
    such_as = f", such as {other}" if other else ""
    return f"{model} {why}: attach {things} with one that {verb}{such_as}"


class Picture(NamedTuple):
    """Pixels of a picture.

    Args:
        width: in pixels.
        height: in pixels.
        rgb: three bytes a pixel, row by row.
    """

    width: int
    height: int
    rgb: bytes


def picture_size(data: bytes, name: str) -> tuple[int, int]:
    """Return width and height of a picture by its header.

    Raises:
        UsageError: it is no picture, or too large.
    """
    with _opened(data, name, "its header cannot be read") as image:
        width, height = image.size
    visible = printable_line(name)
    if width * height > MOST_PIXELS:
        raise UsageError(
            f"{visible} has {width} x {height} pixels: give one of {MOST_PIXELS // 10**6} million at most"
        )
    if max(width, height) > _MOST_RATIO * min(width, height):
        raise UsageError(
            f"{visible} has {width} x {height} pixels: give one whose sides differ by {_MOST_RATIO} times at most"
        )
    return width, height


def picture(data: bytes, name: str, within: tuple[int, int] | None = None) -> Picture:
    """Return the pixels of a picture, upright; the first of one that moves.

    Args:
        data: the file.
        name: how the user calls it.
        within: width and height that it is shrunk to, if it is larger; None leaves its size.

    Raises:
        UsageError: it is damaged, or too large.
    """
    from PIL import ImageOps  # noqa: PLC0415

    picture_size(data, name)
    with _opened(data, name, "it cannot be decoded; give another file") as image:
        if within is not None:  # a JPEG is decoded small
            image.draft("RGB", (2 * max(within), 2 * max(within)))
        upright = ImageOps.exif_transpose(image)
        if upright.mode.startswith("I;16"):  # else all of it would be white
            upright = upright.point(lambda value: value * (1 / 256)).convert("L")
        upright = _on_white(upright)
        if within is not None:
            upright.thumbnail(within)
        return Picture(*upright.size, upright.tobytes())


def _on_white(image: "Image.Image") -> "Image.Image":
    """Return a picture in red, green and blue; what can be seen through is white, as on paper."""
    from PIL import Image  # noqa: PLC0415

    if not image.has_transparency_data:
        return image.convert("RGB")
    visible = image.convert("RGBA")
    white = Image.new("RGBA", visible.size, "white")
    return Image.alpha_composite(white, visible).convert("RGB")


@contextmanager
def _opened(data: bytes, name: str, why: str) -> "Iterator[Image.Image]":
    """Open a picture; whatever fails while it is open is one line, which says `why`."""
    # Imported where a picture is read.
    from PIL import Image  # noqa: PLC0415

    visible = printable_line(name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
                yield image
    except Image.DecompressionBombError:
        raise UsageError(
            f"{visible} has too many pixels: give one of {MOST_PIXELS // 10**6} million at most"
        ) from None
    except Exception:  # Pillow names no kinds: damaged tags raise struct.error, and others
        raise UsageError(f"{visible} is damaged: {why}") from None


def sound_seconds(data: bytes) -> float | None:
    """Return how long a sound is by the headers of its file; None where they do not say so."""
    data = _untagged(data)
    if data[:4] == b"fLaC" and len(data) >= 26:
        rate_and_count = int.from_bytes(data[18:26], "big")
        rate, count = rate_and_count >> 44, rate_and_count & (1 << 36) - 1
        return count / rate if rate in _RATES and count else None
    if data.lstrip(b"\0")[:1] == b"\xff":
        return _mp3_seconds(data)
    bytes_per_s, at = 0, 12
    while data[:4] == b"RIFF" and at + 8 <= len(data):
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        if data[at : at + 4] == b"fmt " and not bytes_per_s:
            bytes_per_s = _wav_rate(data[at + 8 : at + 24])
        elif data[at : at + 4] == b"data":
            return min(size, len(data) - at - 8) / bytes_per_s if bytes_per_s else None
        at += 8 + size + size % 2
    return None


def check_sound(data: bytes, name: str) -> None:
    """Raise where a sound is not to be decoded: a decoder makes room for all that a header claims.

    Raises:
        UsageError: it is longer than an hour, or its headers do not say how long it is.
    """
    seconds = sound_seconds(data)
    if seconds is None or len(data) < 12:  # which mtmd takes for a video
        raise UsageError(
            f"{printable_line(name)} is damaged, or not of {_RATES[0]} to {_RATES[-1]} samples a second: its header cannot be read"
        )
    if seconds > MOST_SECONDS:
        raise UsageError(
            f"{printable_line(name)} lasts {seconds / 60:.0f} minutes: give a sound of {MOST_SECONDS // 60} at most"
        )


def _untagged(data: bytes) -> bytes:
    """Return what is behind the tags that a file begins with, which a decoder skips."""
    while data[:3] == b"ID3" and len(data) >= 10:
        data = data[10 + sum(each << 7 * (3 - at) for at, each in enumerate(data[6:10])) :]
    return data


def _wav_rate(chunk: bytes) -> int:
    """Return the fewest bytes that a second of a WAV file may take, by what is in its `fmt` chunk; 0 if it is compressed."""
    if len(chunk) < 16:
        return 0
    fields = (0, 2), (2, 4), (4, 8), (12, 14), (14, 16)
    form, channels, rate, frame, bits = (int.from_bytes(chunk[a:b], "little") for a, b in fields)
    known = form in _WAV_FORMS and rate in _RATES
    return rate * max(1, min(frame, channels * bits // 8)) if known else 0


def _mp3_seconds(data: bytes) -> float | None:
    """Return how long an MP3 is by the frames that a decoder finds; None if it finds none, or one that does not say its size."""
    at, seconds, before = 0, 0.0, b""
    for _ in range(_MOST_FRAMES):
        expected, at = at, data.find(b"\xff", at)
        if at < 0 or len(data) - at < 4:
            return seconds or None
        head = data[at : at + 3]
        frame = _mp3_frame(head)
        if frame is not None and not frame[0]:
            return None
        # Behind a frame one has to follow, and elsewhere ten, as in the decoder: else headers would hide others.
        follows = at == expected and _one_stream(before, head)
        if frame is not None and _frames_follow(data, at, 1 if follows else 10):
            at, seconds, before = at + frame[0], seconds + frame[1], head
        else:
            at, before = at + 1, b""
    return None


@cache
def _mp3_frame(head: bytes) -> tuple[int, float] | None:
    """Return bytes and seconds of a frame by three bytes of its header, no bytes if it does not say so; None if it is none."""
    if len(head) < 3 or head[0] != 0xFF:
        return None
    layer, number, rate = head[1] >> 1 & 3, head[2] >> 4, head[2] >> 2 & 3
    if (head[1] < 0xF0 and head[1] & 0xFE != 0xE2) or not layer or number == 15 or rate == 3:
        return None
    first, full = bool(head[1] & 8), head[1] & 16
    hertz = (44_100, 48_000, 32_000)[rate] >> (not first) >> (not full)
    samples = 384 if layer == 3 else 1152 if first or layer == 2 else 576
    word = 4 if layer == 3 else 1
    size = samples * _MP3_KBPS[first][layer - 1][number] * 125 // hertz // word * word
    return size and size + (head[2] >> 1 & 1) * word, samples / hertz


def _one_stream(before: bytes, head: bytes) -> bool:
    """Return whether a header of MP3 can stand behind another."""
    if not before or _mp3_frame(head) is None:
        return False
    differing = (before[1] ^ head[1]) & 0xFE or (before[2] ^ head[2]) & 0x0C
    return not differing and (before[2] < 16) == (head[2] < 16)


def _frames_follow(data: bytes, at: int, count: int) -> bool:
    """Return whether so many frames of MP3 stand behind one, or as many as there are."""
    head = here = data[at : at + 3]
    for _ in range(count):
        frame = _mp3_frame(here)
        at += frame[0] if frame else 1
        if len(data) - at < 4:
            return True
        here = data[at : at + 3]
        if not _one_stream(head, here):
            return False
    return True
