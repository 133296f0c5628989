"""Whether the terminal's background is dark, as the terminal itself says (OSC 11)."""

import os
import re
import select
import time

# What nearly every terminal answers stands behind what some do not: nobody waits for an answer that will not come.
QUESTION = b"\x1b]11;?\x1b\\\x1b[c"
_COLOUR = re.compile(rb"\x1b\]11;rgba?:([0-9a-fA-F]+)/([0-9a-fA-F]+)/([0-9a-fA-F]+)")
_ANSWERS = re.compile(rb"\x1b\]11;[^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[\?[\d;]*c")
_END = re.compile(rb"\x1b\[\?[\d;]*c")
_PATIENCE_S = 0.2
# What comes later would be taken for keys; over a slow line it may.
_PATIENCE_FROM_AFAR_S = 1.0
# How bright red, green and blue are to the eye (ITU-R BT.601).
_WEIGHTS = (0.299, 0.587, 0.114)


def is_dark(answer: bytes) -> bool | None:
    """Return whether the colour in a terminal's answer is dark; None without one."""
    found = _COLOUR.search(answer)
    if found is None:
        return None
    parts = [int(each, 16) / (16 ** len(each) - 1) for each in found.groups()]
    bright = sum(weight * part for weight, part in zip(_WEIGHTS, parts, strict=True))
    return bool(bright < 0.5)


def typed(said: bytes) -> bytes:
    """Return what was typed while the terminal answered."""
    return _ANSWERS.sub(b"", said)


def answer(terminal: int) -> bytes:
    """Return what the terminal said up to its answer to `QUESTION`, or in the time that it has."""
    patience_s = _PATIENCE_FROM_AFAR_S if "SSH_CONNECTION" in os.environ else _PATIENCE_S
    end_s, said = time.monotonic() + patience_s, b""
    while not _END.search(said):
        left_s = end_s - time.monotonic()
        if left_s <= 0 or not select.select([terminal], [], [], left_s)[0]:
            break
        said += os.read(terminal, 1024)
    return said
