"""Cuts Markdown that is still growing into blocks that are done and one that is not.

A block that is done need not be laid out again while the rest streams in. Long code is cut inside
its fence, too. The pieces are only for the time of streaming: a finished message is laid out whole.
"""

import re
from dataclasses import dataclass

FRAME = "frame"
"""Meta of a style: what is drawn round code and is no part of it."""
CODE = "code"
"""Meta of a style: the code that a click copies."""
FOLD = "fold"
"""Meta of a style: a click folds the message, or unfolds it."""

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})\s*([^\s`]*)")
# What belongs to the block before it although an empty line lies between: list items, and what is indented.
_GOES_ON = re.compile(r"\s+\S|([-*+]|\d{1,9}[.)])\s")
_CODE_LINES = 8


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a message: Markdown, or lines of code.

    Args:
        text: of the piece.
        language: of the code, empty where it is not said; None for Markdown.
        goes_on: whether it belongs right below the piece before.
    """

    text: str
    language: str | None = None
    goes_on: bool = False


class BlockCutter:
    """Takes text as it grows; `done` are blocks that will not change, `open` is the rest."""

    def __init__(self) -> None:
        self.done: list[Block] = []
        self._lines: list[str] = []
        self._partial = ""
        self._fence: str | None = None
        self._language = ""
        self._in_pieces = False

    @property
    def open(self) -> Block:
        """What may still change."""
        text = "\n".join([*self._lines, self._partial])
        return self._block(text)

    def feed(self, text: str) -> None:
        """Take the next text."""
        *lines, self._partial = (self._partial + text).split("\n")
        for line in lines:
            self._take(line)

    def _take(self, line: str) -> None:
        fence = _FENCE.match(line)
        if self._fence is not None:
            if fence and fence[1].startswith(self._fence) and not fence[2]:
                self._finish()
                self._fence, self._in_pieces = None, False
                return
            self._lines.append(line)
            if len(self._lines) >= _CODE_LINES:
                self._finish()
                self._in_pieces = True
        elif fence:
            self._finish()
            self._fence, self._language = fence[1], fence[2]
        else:
            if (
                self._lines
                and not self._lines[-1].strip()
                and line.strip()
                and not _GOES_ON.match(line)
            ):
                self._finish()
            self._lines.append(line)

    def _finish(self) -> None:
        text = "\n".join(self._lines)
        self._lines = []
        if text.strip():
            self.done.append(self._block(text))

    def _block(self, text: str) -> Block:
        return Block(text, self._language if self._fence else None, self._in_pieces)
