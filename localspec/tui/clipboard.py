"""The clipboard of the desktop, by the programs that a desktop has for it: texts go in, pictures come out."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from localspec.errors import UsageError

_MOST_S, _MOST_PICTURE_S = 1.0, 5.0
# The variable that a desktop sets, and what fills its clipboard.
_PROGRAMS = (
    ("WAYLAND_DISPLAY", ("wl-copy",)),
    ("DISPLAY", ("xclip", "-selection", "clipboard")),
    ("DISPLAY", ("xsel", "--clipboard", "--input")),
    ("WSL_DISTRO_NAME", ("clip.exe",)),
    ("HOME", ("pbcopy",)),
)
_IMAGE = "image/png"
_APPLE_SCRIPT = "get the clipboard as «class PNGf»"
# What prints the picture there, and the package that has the program.
_READERS = (
    ("WAYLAND_DISPLAY", ("wl-paste", "--type", _IMAGE), "wl-clipboard"),
    ("DISPLAY", ("xclip", "-selection", "clipboard", "-target", _IMAGE, "-out"), "xclip"),
)
_MAC_READERS = (
    ("HOME", ("pngpaste", "-"), "pngpaste"),
    ("HOME", ("osascript", "-e", _APPLE_SCRIPT), "osascript"),
)
_HEX = re.compile(rb"\xc2\xabdata PNGf([0-9A-F]+)\xc2\xbb\s*")
"""How `osascript` prints it."""


def fill_clipboard(text: str) -> bool:
    """Put a text into the clipboard; return whether a program took it. From afar there is only the terminal's."""
    data = text.encode(errors="replace")
    # Not `capture_output`: a program that stays to serve the clipboard holds its pipes open.
    return not _is_remote() and any(
        _run(command, _MOST_S, input=data, stdout=subprocess.DEVNULL)
        for variable, command in _PROGRAMS
        if os.environ.get(variable) and shutil.which(command[0])
    )


def clipboard_picture() -> bytes:
    """Return the picture in the clipboard, as PNG.

    Raises:
        UsageError: there is none, or nothing here prints it.
    """
    if _is_remote():
        raise UsageError("the clipboard is of another machine: attach a picture as @FILE")
    readers = _MAC_READERS if sys.platform == "darwin" else _READERS
    mine = [each for each in readers if os.environ.get(each[0])]
    commands = [command for _, command, _ in mine if shutil.which(command[0])]
    if not commands:
        missing = f"install {mine[0][2]}, or " if mine else ""
        raise UsageError(f"the clipboard cannot be read here: {missing}attach a picture as @FILE")
    for command in commands:
        done = _run(command, _MOST_PICTURE_S, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        if done is not None and done.stdout:
            encoded = _HEX.fullmatch(done.stdout)
            return bytes.fromhex(encoded[1].decode()) if encoded else done.stdout
    raise UsageError("the clipboard holds no picture: copy one, or attach it as @FILE")


def _is_remote() -> bool:
    return "SSH_CONNECTION" in os.environ


def _run(
    command: Sequence[str], most_s: float, **pipes: Any
) -> subprocess.CompletedProcess[bytes] | None:
    """Run a program; return None where it fails."""
    try:
        return subprocess.run(  # noqa: S603 - one of those above
            command, stderr=subprocess.DEVNULL, timeout=most_s, check=True, **pipes
        )
    except (OSError, subprocess.SubprocessError):
        return None
