"""A microphone without a device: the part of sounddevice's interface that is used."""

import sys
import threading
from array import array
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

RATE = 8000
LOUD, QUIET = 9000, 3
_BLOCK = RATE // 10


class PortAudioError(Exception):
    """As the library raises it."""


class FakeStream:
    """`sounddevice.RawInputStream`, which hears only what a test says.

    Args:
        samplerate: a second.
        blocksize: samples that the callback gets at a time.
        channels: one.
        dtype: of a sample.
        callback: gets them, in a thread of the library.
    """

    opened: "list[FakeStream]" = []  # noqa: RUF012 - of one test

    def __init__(
        self,
        *,
        samplerate: int,
        blocksize: int,
        channels: int,
        dtype: str,
        callback: Callable[[Any, int, object, object], None],
    ) -> None:
        assert (samplerate, blocksize, channels, dtype) == (RATE, _BLOCK, 1, "int16")
        self.callback, self.closed = callback, False
        self.opened.append(self)

    def start(self) -> None:
        """Hear half a second."""
        self.speak(5)

    def close(self) -> None:
        self.closed = True

    def speak(self, blocks: int, level: int | None = None) -> None:
        """Hear tenths of a second."""
        level = FakeStream.level if level is None else level
        block = memoryview(array("h", [level, -level] * (_BLOCK // 2)).tobytes())

        def run() -> None:
            for _ in range(blocks):
                self.callback(block, _BLOCK, None, None)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()

    level = LOUD


def microphone_double(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> type[FakeStream]:
    """Put a double in the library's place; return its streams' class."""
    library = ModuleType("sounddevice")
    device = {"name": "Mic", "max_input_channels": 1, "default_samplerate": float(RATE)}

    def query_devices(device_: object = None, kind: str | None = None) -> dict[str, Any]:
        assert kind == "input"
        return device

    usual = {
        "PortAudioError": PortAudioError,
        "RawInputStream": FakeStream,
        "query_devices": query_devices,
    }
    vars(library).update(usual | changes)
    monkeypatch.setitem(sys.modules, "sounddevice", library)
    monkeypatch.setattr(FakeStream, "opened", [])
    monkeypatch.setattr(FakeStream, "level", LOUD)
    return FakeStream
