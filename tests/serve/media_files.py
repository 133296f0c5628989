"""Pictures and sounds that requests hold."""

import base64
import io
import wave
from functools import cache

from PIL import Image


@cache
def png(shade: int = 0, size: int = 8) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (size, size), (shade, 99, 7)).save(file, "PNG")
    return file.getvalue()


@cache
def wav(level: int = 0) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(1)
        sound.setframerate(8000)
        sound.writeframes(bytes([level]) * 80)
    return file.getvalue()


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def url_of(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{encoded(data)}"
