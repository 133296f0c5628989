"""Pictures and sounds that requests hold: each shade, and each level, is another."""

import base64
import io
import wave
from functools import cache

from tests.test_media import png as png_of
from tests.test_media import url as url_of

__all__ = ["encoded", "png", "url_of", "wav"]


@cache
def png(shade: int = 0, size: int = 8) -> bytes:
    return png_of(size, size, (shade, 99, 7))


@cache
def wav(level: int = 0) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((1, 1, 8000, 80, "NONE", ""))
        sound.writeframes(bytes([level]) * 80)
    return file.getvalue()


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()
