"""Microphone: records speech, by the library of the extra `listen`."""

import importlib
import io
import math
import os
import select
import sys
import wave
from array import array
from collections import deque
from typing import Any

from localspec.display import duration_text, printable_line, sparkline
from localspec.errors import UsageError

MOST_S = 60.0
"""Of one recording."""
BLOCK_S = 0.1
_LEVELS = 12
_LOUDEST = 1 << 15
_SILENCE = _LOUDEST // 1000
"""What is never louder was recorded without a microphone, or with a muted one."""
_OR_FILE = "or attach a file with -f FILE or @FILE"


class Microphone:
    """Records until it is closed, `MOST_S` at most.

    Raises:
        UsageError: the library or a microphone is missing.
    """

    def __init__(self) -> None:
        self._blocks: list[bytes] = []
        self._levels = deque([0.0] * _LEVELS, _LEVELS)
        self._peak = 0
        library = _sounddevice()
        try:
            # The rate of the device: few take another one.
            self._rate = int(library.query_devices(kind="input")["default_samplerate"])
            self._stream = library.RawInputStream(
                samplerate=self._rate,
                blocksize=round(self._rate * BLOCK_S),
                channels=1,
                dtype="int16",
                callback=self._take,
            )
            self._stream.start()
        except (library.PortAudioError, ValueError) as error:
            raise _no_microphone(error) from None

    def close(self) -> None:
        """End."""
        self._stream.close()

    @property
    def seconds(self) -> float:
        """How much is recorded."""
        return sum(map(len, self._blocks)) / 2 / self._rate

    @property
    def is_full(self) -> bool:
        """Whether no more is recorded."""
        return self.seconds >= MOST_S

    @property
    def line(self) -> str:
        """How much is recorded, and how loud the last second was."""
        levels = sparkline([*self._levels], 0, 1)
        return f"recording {duration_text(self.seconds, 1)} of {MOST_S:.0f} · {levels}"

    def wav(self) -> bytes:
        """Return what was recorded as a file.

        Raises:
            UsageError: it is only silence.
        """
        if self._peak <= _SILENCE:
            raise UsageError(f"only silence was recorded: check the microphone, {_OR_FILE}")
        file = io.BytesIO()
        with wave.open(file, "wb") as writer:
            writer.setnchannels(1)
            writer.setsampwidth(2)
            writer.setframerate(self._rate)
            writer.writeframes(b"".join(self._blocks))
        return file.getvalue()

    def _take(self, block: Any, _frames: int, _time: object, _status: object) -> None:
        """Take what was recorded since the last time, in a thread of the library."""
        if self.is_full:
            return
        data = bytes(block)
        peak = max(map(abs, array("h", data)), default=0)
        self._blocks.append(data)
        self._peak = max(self._peak, peak)
        self._levels.append(max(0.0, 1 + math.log10(max(peak, 1) / _LOUDEST) / 3))


def enter_pressed(wait_s: float = 0.0) -> bool:
    """Return whether the user pressed Enter at the terminal, and take that; also at its end."""
    if not select.select([sys.stdin], [], [], wait_s)[0]:
        return False
    os.read(sys.stdin.fileno(), 4096)
    return True


def _sounddevice() -> Any:
    try:
        return importlib.import_module("sounddevice")
    except ImportError:
        install = "`pip install 'localspec[listen]'`"
        raise UsageError(f"recording needs sounddevice: {install}, {_OR_FILE}") from None
    except OSError as error:  # it comes without the library that it calls
        reason = printable_line(str(error))
        raise UsageError(
            f"recording needs PortAudio ({reason}): install libportaudio2, {_OR_FILE}"
        ) from None


def _no_microphone(error: Exception) -> UsageError:
    reason = printable_line(str(error))[:120]
    return UsageError(f"no microphone can be opened ({reason}): connect one, {_OR_FILE}")
