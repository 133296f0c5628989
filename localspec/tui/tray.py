"""Tray: the pictures and sounds of a conversation that are no files, and how many tokens each takes."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from localspec.display import counted
from localspec.engine.remote_engine import RemoteEngine
from localspec.errors import LocalspecError, UsageError
from localspec.messages import MediaPart, Message
from localspec.session.attachments import attached, label, mentioned, mentions, unmatched

_UNMENTIONABLE = re.compile(r'["\n]')
_WORD = "."
"""Counted with a picture and without it: some templates refuse a message without words."""


class Tray:
    """What is attached by a name that stands for no file, and what is known of what is attached.

    Args:
        engine: counts tokens.
        folder: what names of files are relative to.
        names: returns the names in the conversation, which stand for nothing else.

    Attributes:
        held: pictures and sounds by their names.
        changed: called when the tokens of one are known.
        uncounted: those of which the tokens are not known yet.
    """

    def __init__(
        self, engine: RemoteEngine, folder: Path, names: Callable[[], Collection[str]]
    ) -> None:
        self.held: dict[str, MediaPart] = {}
        self.changed: Callable[[], None] = lambda: None
        self.uncounted: dict[bytes, MediaPart] = {}
        self._engine, self._folder, self._names = engine, folder, names
        self._tokens: dict[bytes, int] = {}
        self._visible: tuple[list[str], list[MediaPart]] = ([], [])

    def hold_clipboard(self) -> str:
        """Take the picture in the clipboard; return the name that stands for it.

        Raises:
            UsageError: there is none, or nothing here prints it.
        """
        from localspec.tui.clipboard import clipboard_picture  # noqa: PLC0415 - few have pictures

        return self.hold(clipboard_picture(), "clipboard", "png")

    def hold(self, data: bytes, stem: str, suffix: str) -> str:
        """Take a picture or a sound, such as the clipboard's; return the name that stands for it in questions.

        Raises:
            UsageError: it is neither, or too large.
        """
        number, names = 1, {*self.held, *self._names()}
        while (name := f"{stem}-{number}.{suffix}") in names or (self._folder / name).exists():
            number += 1
        self.held[name] = MediaPart.of(data, name)
        return name

    def take_back(self, text: str, media: Sequence[MediaPart]) -> str:
        """Return a question that can be sent again, with mentions of all its pictures and sounds; those that are no files here are held."""
        for part in media:
            name = _UNMENTIONABLE.sub("'", part.name) or part.kind
            mention = f'@"{name}"' if re.search(r"\s", name) else f"@{name}"
            if part.data and unmatched(mention, self._folder):
                self.held[name] = part
                self._visible = [], []
            if not mentioned(text, {name: part}):
                text = f"{text} {mention}".lstrip()
        return text

    def mentioned(
        self,
        text: str,
        others: Mapping[str, MediaPart] = MappingProxyType({}),
        pasted: Collection[str] = (),
    ) -> list[MediaPart]:
        """Return the pictures and sounds that a text mentions, as far as they can be read; files are not read again for other words."""
        names = [*mentions(text), *others, *sorted(pasted)]
        if names != self._visible[0]:
            media = list[MediaPart]()
            with suppress(UsageError):  # which sending reports
                files = attached(
                    text, self._folder, {**self.held, **others}, pasted, media_only=True
                )
                media = [each for each in files if isinstance(each, MediaPart)]
            self._visible = names, media
        return self._visible[1]

    def about(self, part: MediaPart) -> str:
        """Return a line about a picture or a sound."""
        tokens = self._tokens.get(part.data)
        if tokens is None and part.data:
            self.uncounted[part.data] = part
        return label(part) + (f" · {counted(tokens, 'token')}" if tokens else "")

    def recount(self) -> None:
        """Have all counted again: another model takes other tokens."""
        self._tokens.clear()
        self._visible = [], []
        self.changed()

    async def count(self) -> None:
        """Count the tokens of those that are not counted yet; a model that takes none of them leaves that unknown."""
        parts, self.uncounted = self.uncounted, {}
        self._tokens |= dict.fromkeys(parts, 0)
        with suppress(LocalspecError):
            words = await self._engine.count([Message.user(_WORD)])
            for data, part in parts.items():
                both = await self._engine.count([Message.user(_WORD, media=[part])])
                self._tokens[data] = both - words
        self.changed()
