"""Questions: what goes with a question, and whether the model takes it: files that it mentions, passages, pictures and sounds."""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from localspec.engine.remote_engine import RemoteEngine
from localspec.errors import UsageError
from localspec.media import why_not_taken
from localspec.messages import MediaPart, Message
from localspec.session.attachments import (
    attached,
    mentioned,
    mentions,
    pasted_notes,
    question_with,
    unmatched,
    unmatched_line,
    with_mentions,
)
from localspec.session.conversation import SavedConversation
from localspec.session.documents import Docs
from localspec.tui.models import Models
from localspec.tui.tray import Tray


class Questions:
    """Makes messages of what the user types.

    Args:
        engine: answers them.
        models: what is loaded.
        talk: the conversation.
        tray: the pictures and sounds that are no files.
        docs: returns the index that questions are answered from now.
        folder: what paths in `@path` are relative to.
        note: prints that passages are missing.

    Attributes:
        pasted: mentions of files that came with a paste and are text, by the question that they stand in.
    """

    def __init__(
        self,
        engine: RemoteEngine,
        models: Models,
        talk: SavedConversation,
        tray: Tray,
        docs: Callable[[], Docs],
        folder: Path,
        note: Callable[[str], None],
    ) -> None:
        self._engine, self._models, self._talk, self._tray = engine, models, talk, tray
        self._docs, self._folder, self._note = docs, folder, note
        self.pasted: dict[str, frozenset[str]] = {}

    def new(self, text: str) -> tuple[Message, list[str]]:
        """Return a question behind the conversation, and what the user should know of it.

        Raises:
            UsageError: a file cannot be read, or the model takes none such.
            LocalspecError: an index cannot be read.
        """
        pasted = self.pasted.get(text, frozenset())
        text = self.with_mentions(text)
        question = self.with_files(text, self._talk.answered(), pasted)
        self.require_taken(self._talk.turns_with(question))
        return question, self._unmatched(text, pasted)

    def instead(self, number: int, text: str, *, keeps: bool) -> tuple[Message, list[str]]:
        """Return what is asked in place of the `number`-th question, as `new`; with all that it had where it `keeps` that."""
        pasted = self.pasted.get(text, frozenset())
        text, before = self.with_mentions(text), self._talk.before(number)
        own, staying = self._media_of(number, keeps=keeps)
        question = self.with_files(text, before, pasted, own, staying)
        self.require_taken([*before, question])
        return question, self._unmatched(text, pasted, [*own.values()])

    def with_mentions(self, text: str) -> str:
        """Return a question in which paths of pictures and sounds are mentions, where the model takes such."""
        ready = self._models.ready
        takes = ready is not None and (ready.sees or ready.hears) and "\n" not in text
        return with_mentions(text, self._folder) if takes else text

    def with_files(
        self,
        text: str,
        before: Sequence[Message],
        pasted: Collection[str] = (),
        own: Mapping[str, MediaPart] = MappingProxyType({}),
        staying: Sequence[MediaPart] = (),
    ) -> Message:
        """Return a question with the files that it mentions and the passages that fit it.

        Args:
            text: the question.
            before: the conversation.
            pasted: mentions that are text.
            own: pictures and sounds that mentions may name besides.
            staying: those that go with it, mentioned or not.
        """
        docs, question = self._index_and_question(text, pasted)
        files = attached(question, self._folder, {**self._tray.held, **own}, pasted)
        passages = docs.documents(question, before)
        if missed := docs.missed_line(passages):
            self._note(missed)
        return question_with(text, [*staying, *files, *passages])

    def attached_media(
        self, text: str, number: int | None = None, pasted: Collection[str] = ()
    ) -> list[MediaPart]:
        """Return the pictures and sounds that would go with a text, in place of the `number`-th question or as a new one."""
        own, staying = self._media_of(number)
        others = self._tray.mentioned(self.with_mentions(text), own, pasted)
        return [*dict.fromkeys([*staying, *others])]

    def require_taken(self, turns: Sequence[Message]) -> None:
        """Raise UsageError if the model that is loaded does not take the pictures and sounds of a conversation."""
        self.require_senses({part.kind for each in turns for part in each.media})

    def require_senses(self, kinds: Collection[Literal["image", "audio"]]) -> None:
        """Raise UsageError if the model that is loaded does not take such pictures or sounds; a server knows that itself."""
        ready = self._models.ready
        if ready is None or not kinds or not self._engine.can.local_files:
            return
        from localspec.models.mmproj import model_that_takes  # noqa: PLC0415 - few have pictures

        for kind in sorted(kinds):
            other = model_that_takes(kind)
            if other == ready.target:  # its encoders are not here, or not wanted
                without = self._models.usual.reads_text_only
                other += " without --mmproj off" if without else f" after `localspec pull {other}`"
            why_not = why_not_taken(
                kind, ready.target, sees=ready.sees, hears=ready.hears, other=other
            )
            if why_not is not None:
                raise UsageError(why_not)

    def _unmatched(
        self, text: str, pasted: Collection[str], own: Sequence[MediaPart] = ()
    ) -> list[str]:
        held = self._tray.held | {each.name: each for each in own}
        names = unmatched(self._index_and_question(text, pasted)[1], self._folder, held)
        notes = [unmatched_line(name, self._folder) for name in names]
        return notes + pasted_notes(pasted, self._folder)

    def _index_and_question(self, text: str, pasted: Collection[str]) -> tuple[Docs, str]:
        """Return what a question is answered from, and the question; a pasted name of an index is text."""
        named = next(mentions(text), None)
        docs = self._docs()
        return (docs, text) if named in pasted else docs.parse_mention(text)

    def _media_of(
        self, number: int | None, *, keeps: bool = False
    ) -> tuple[dict[str, MediaPart], list[MediaPart]]:
        """Return the pictures and sounds of a question by name, and those that stay if its text changes."""
        if number is None:
            return {}, []
        message = self._talk.question(number).message
        own = {each.name: each for each in message.media if each.data}
        named = [] if keeps else mentioned(message.typed, own)
        return own, [each for each in message.media if each.data and each not in named]
