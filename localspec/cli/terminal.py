"""AnswerStream: the answer on stdout, as it is confirmed."""

import sys

from localspec.chat.events import Text
from localspec.display import Wrapping, clean, columns_of


class AnswerStream:
    """Writes chunks as they come.

    A pipe or a file gets every character; a terminal is shown what it would obey, and gets lines that end between words.

    Args:
        silent: write nothing.
        show_thinking: write thoughts, too, set off from the answer.
    """

    def __init__(self, *, silent: bool, show_thinking: bool) -> None:
        self._silent = silent
        self._show_thinking = show_thinking
        self._wrapping: Wrapping | None = None
        if sys.stdout.isatty():
            self._wrapping = Wrapping(lambda: columns_of(sys.stdout))
        self._in_thoughts = False
        self._last = "\n"

    def write(self, chunk: Text) -> None:
        """Write one chunk and flush."""
        if self._silent or (chunk.thinking and not self._show_thinking):
            return
        if chunk.thinking != self._in_thoughts:
            self._emit("<think>\n" if chunk.thinking else "\n</think>\n\n")
            self._in_thoughts = chunk.thinking
        self._emit(chunk.text)
        sys.stdout.flush()

    def end(self) -> None:
        """Close what is open, and end the last line."""
        if self._in_thoughts:
            self._emit("\n</think>")
        if self._wrapping is not None:
            self._write(self._wrapping.flush())
        if not self._silent and self._last != "\n":
            self._write("\n")
        sys.stdout.flush()

    def _emit(self, text: str) -> None:
        if self._wrapping is not None:
            text = self._wrapping.feed(clean(text, tabs=True))
        self._write(text)

    def _write(self, text: str) -> None:
        if text:
            sys.stdout.write(text)
            self._last = text[-1]
