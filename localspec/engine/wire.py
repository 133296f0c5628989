"""Frames: one command or notice as one line of JSON with the protocol's version. Knows no pipe and no process."""

import json
from typing import Generic, TypeVar

import msgspec

from localspec.display import printable
from localspec.engine.protocol import VERSION, Command, EngineDied, Notice
from localspec.errors import UsageError

# A context of a million tokens is far below it; what is above is no conversation.
MAX_FRAME_BYTES = 32 << 20
_HEAD = b'{"v":%d,' % VERSION

T = TypeVar("T")


class _Version(msgspec.Struct):
    v: object = None


_VERSION = msgspec.json.Decoder(_Version)


class FrameError(Exception):
    """A line is no frame of this protocol; the text says why, on one line."""


class Frames(Generic[T]):
    """Reads the frames that one side sends.

    Args:
        kind: what a frame may hold.
    """

    def __init__(self, kind: type[T]) -> None:
        self._decoder = msgspec.json.Decoder(kind)

    def decode(self, line: bytes) -> T:
        """Return the command or the notice in a line.

        Raises:
            FrameError: it is malformed, of another version, or of no such kind.
        """
        try:
            if (version := _VERSION.decode(line).v) != VERSION:
                raise FrameError(
                    f"a frame is of protocol {printable(str(version)[:20])}, this side speaks {VERSION}: "
                    "localspec was changed while it ran, start it again"
                )
            return self._decoder.decode(line)
        except (msgspec.MsgspecError, UsageError, UnicodeDecodeError, RecursionError) as error:
            raise FrameError(f"a frame is wrong: {' '.join(str(error).split())[:200]}") from None


COMMANDS: Frames[Command] = Frames(Command)  # type: ignore[arg-type]  # a union is no class
NOTICES: Frames[Notice] = Frames(Notice)  # type: ignore[arg-type]


def encode(message: Command | Notice) -> bytes:
    """Return a command or a notice as a line, its end included.

    Raises:
        FrameError: it is larger than a frame may be.
    """
    assert not isinstance(message, EngineDied), "made by the client for itself"  # noqa: S101
    try:
        body = msgspec.json.encode(message)
    except (
        UnicodeEncodeError
    ):  # half of a character, which a paste may hold, and no tokenizer takes
        text = json.dumps(msgspec.to_builtins(message), ensure_ascii=False)
        body = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
    line = b"%s%s\n" % (_HEAD, body[1:])
    if len(line) > MAX_FRAME_BYTES:
        advice = (
            "send less text"
            if isinstance(message, Command)
            else "ask for less, or read answers faster"
        )
        name = type(message).__name__
        raise FrameError(f"{name} has {len(line)} bytes, more than {MAX_FRAME_BYTES}: {advice}")
    return line
