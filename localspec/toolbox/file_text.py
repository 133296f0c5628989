"""FileText: a file's text as a model reads and changes it, with line feeds alone; what is written has the file's own line ends."""

from dataclasses import dataclass
from typing import Self

from localspec.errors import UsageError

_MARK = "\ufeff"
_VISIBLE = str.maketrans({"\r": "␍", "\u2028": "\\u2028", "\u2029": "\\u2029"})


@dataclass(frozen=True, slots=True)
class FileText:
    """The text of a file.

    Args:
        original: as it stands in the file, without a mark of UTF-8.
        mark: of UTF-8, where the file begins with one.
    """

    original: str
    mark: str = ""

    @classmethod
    def of(cls, content: bytes, name: str) -> Self:
        """Return the text of a file.

        Raises:
            UsageError: it is not UTF-8.
        """
        try:
            text = content.decode()
        except UnicodeDecodeError:
            raise UsageError(f"{name} is not UTF-8 text: use a command to read it") from None
        return cls(text.removeprefix(_MARK), _MARK if text.startswith(_MARK) else "")

    @property
    def line_end(self) -> str:
        """What most lines of the file end with; empty where it has one line."""
        return _line_end(self.original)

    @property
    def text(self) -> str:
        """The text with line feeds alone."""
        return self._with_line_feeds(self.original)

    @property
    def lines(self) -> list[str]:
        """The lines as compilers, git and grep count them: a form feed ends none."""
        return self.text.removesuffix("\n").split("\n") if self.text else []

    def count(self, old: str) -> int:
        """Return how often a text occurs in it, whatever ends its lines."""
        return self.text.count(self._with_line_feeds(old)) if old else 0

    def replaced(self, old: str, new: str) -> bytes:
        """Return the file with `new` in place of `old`, which is there once, and every other byte as it was."""
        text, old, new = self.text, self._with_line_feeds(old), self._with_line_feeds(new)
        at = text.index(old)
        # Lines that stay keep their ends, in a file with two kinds, too.
        same = _common(old, new)
        rest = _common(old[same:][::-1], new[same:][::-1])
        first, last = self._place(at + same), self._place(at + len(old) - rest)
        end = _line_end(self.original[self._place(at) : self._place(at + len(old))])
        middle = new[same : len(new) - rest].replace("\n", end or self.line_end or "\n")
        return (self.mark + self.original[:first] + middle + self.original[last:]).encode()

    def rewritten(self, new: str) -> bytes:
        """Return a new text with the file's line ends and mark; as it is where the file has none."""
        if self.line_end:
            new = self._with_line_feeds(new).replace("\n", self.line_end)
        return (self.mark + new.removeprefix(_MARK)).encode()

    def _with_line_feeds(self, text: str) -> str:
        if self.line_end == "\r":  # of an old Macintosh, without any line feed
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        return text.replace("\r\n", "\n")

    def _place(self, at: int) -> int:
        """Return where in the file a place in its text is."""
        if self.line_end == "\r":
            return at
        parts, place = self.original.split("\r\n"), 0
        for part in parts:
            if at <= len(part):
                return place + at
            place, at = place + len(part) + 2, at - len(part) - 1
        return len(self.original)


def diff_lines(content: bytes, name: str) -> list[str]:
    """Return the lines of a file for a diff that a person judges, each with a line feed; what else might end a line is visible."""
    return [f"{line.translate(_VISIBLE)}\n" for line in FileText.of(content, name).lines]


def _common(one: str, other: str) -> int:
    """Return with how many equal characters two texts begin."""
    pairs = zip(one, other, strict=False)
    least = min(len(one), len(other))
    return next((at for at, (a, b) in enumerate(pairs) if a != b), least)


def _line_end(text: str) -> str:
    pairs, feeds = text.count("\r\n"), text.count("\n")
    if feeds:
        return "\r\n" if 2 * pairs > feeds else "\n"
    return "\r" if "\r" in text else ""
