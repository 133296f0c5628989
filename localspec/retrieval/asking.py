"""Asking: which index a question is about, and the passages that go with it."""

import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from localspec.display import printable
from localspec.messages import DocumentPart, Message
from localspec.retrieval import USUAL_TOKENS
from localspec.retrieval.citing import PassageText, as_documents, passages_in, within

_MENTION = re.compile(r"@([a-z0-9][a-z0-9._-]*)\s+(?=\S)")
_LOOKED_AT = 20


@dataclass(frozen=True, slots=True)
class Docs:
    """What questions are answered from.

    Args:
        name: of an index; empty for none.
        tokens: what the passages of one question may take of the context.
    """

    name: str = ""
    tokens: int = USUAL_TOKENS

    def check(self) -> "Docs":
        """Return this, ready to be asked.

        Raises:
            UsageError: there is no such index.
            LocalspecError: it cannot be read, or its model cannot be loaded.
        """
        if self.name:
            from localspec.retrieval.finding import prepare  # noqa: PLC0415 - sqlite3, which few need
            from localspec.retrieval.index import opened  # noqa: PLC0415

            with closing(opened(self.name)) as index:
                prepare(index)
        return self

    def meant_by(self, typed: str) -> "tuple[Docs, str]":
        """Return what a question is answered from, and the question: `@NAME question` names an index for itself."""
        found = _MENTION.match(typed)
        if found:
            from localspec.retrieval.index import index_names  # noqa: PLC0415 - likewise

            if found[1] in index_names():
                return replace(self, name=found[1]), typed[found.end() :]
        return self, typed

    def documents(self, question: str, before: Sequence[Message]) -> tuple[DocumentPart, ...]:
        """Return what goes with a question; nothing where there is no index.

        Args:
            question: the words to look for.
            before: the conversation so far.

        Raises:
            LocalspecError: the index is not there, or cannot be read.
        """
        if not self.name:
            return ()
        return as_documents(self.found(question), passages_in(before), self.tokens)

    def texts(self, question: str) -> list[PassageText]:
        """Return the passages that fit a question best, as many as may be taken of the context."""
        return within(self.found(question), self.tokens)

    def found(self, question: str) -> list[PassageText]:
        """Return more passages than anybody takes, the best first.

        Raises:
            LocalspecError: the index is not there, or cannot be read.
        """
        from localspec.retrieval.finding import found as looked_up  # noqa: PLC0415 - sqlite3, which few need
        from localspec.retrieval.index import opened  # noqa: PLC0415
        from localspec.retrieval.reading import place  # noqa: PLC0415
        from localspec.storage.paths import brief  # noqa: PLC0415

        with closing(opened(self.name)) as index:
            found = looked_up(index, question, _LOOKED_AT)
        return [
            PassageText(
                # As it can stand in the tag of a document.
                printable(place(brief(each.path), each.passage.first, each.passage.last)).replace(
                    '"', "?"
                ),
                each.passage.text,
            )
            for each in found
        ]
