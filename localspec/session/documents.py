"""Documents: which index a question is about, and the passages of the user's files that go with it. The seam of `retrieval`."""

import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from localspec.display import printable
from localspec.messages import DocumentPart, Message
from localspec.options import PASSAGE_TOKENS
from localspec.session.citing import PassageText, as_documents, nothing_fits, passages_in, within
from localspec.storage.paths import brief

_MENTION = re.compile(r"@([a-z0-9][a-z0-9._-]*)\s+(?=\S)")
_LOOKED_AT = 20


def index_names() -> list[str]:
    """Return the names of the indexes that there are."""
    from localspec.retrieval import index  # noqa: PLC0415 - a feature that can be taken away

    return index.index_names()


@dataclass(frozen=True, slots=True)
class Docs:
    """What questions are answered from.

    Args:
        name: of an index; empty for none.
        tokens: what the passages of one question may take of the context.
    """

    name: str = ""
    tokens: int = PASSAGE_TOKENS

    def check(self) -> "Docs":
        """Return this, with its vectors and their model loaded if that is here, so that no question waits for them.

        Raises:
            UsageError: there is no such index.
            LocalspecError: it cannot be read, or its model cannot be loaded.
        """
        if self.name:
            from localspec.retrieval.index import open_index  # noqa: PLC0415 - a feature that can be taken away

            with closing(open_index(self.name)) as index:
                model = index.vector_model()
                if model is not None:
                    from localspec.retrieval.embedding import (  # noqa: PLC0415 - few indexes have vectors
                        text_vectors,
                        vector_table,
                    )

                    if text_vectors(model) is not None:
                        with index.reading():
                            vector_table(index)
        return self

    def parse_mention(self, typed: str) -> "tuple[Docs, str]":
        """Return what a question is answered from, and the question: `@NAME question` names an index for itself."""
        mention = _MENTION.match(typed)
        if mention and mention[1] in index_names():
            return replace(self, name=mention[1]), typed[mention.end() :]
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
        return as_documents(self._passages(question), passages_in(before), self.tokens)

    def missed_line(self, documents: Sequence[DocumentPart]) -> str:
        """Return a line for the user where no passage fits a question; empty where one does."""
        told = f"nothing in the index {self.name!r} fits this question; the model is told so"
        return told if nothing_fits(documents) else ""

    def search_docs(self, question: str) -> str:
        """Search the user's documents for passages, each under its path and lines.

        Args:
            question: what to look for, in words that the documents may use
        """
        texts = within(self._passages(question), self.tokens)
        return "\n\n".join(f"{each.where}\n{each.text}" for each in texts) or "[nothing fits]"

    def _passages(self, question: str) -> list[PassageText]:
        """Return more passages than fit into any context, the best first.

        Raises:
            LocalspecError: the index is not there, or cannot be read.
        """
        from localspec.retrieval.index import open_index  # noqa: PLC0415
        from localspec.retrieval.reading import place  # noqa: PLC0415
        from localspec.retrieval.search import search  # noqa: PLC0415

        texts = list[PassageText]()
        with closing(open_index(self.name)) as index:
            matches = search(index, question, _LOOKED_AT)
        for each in matches:
            where = printable(place(brief(each.path), each.passage.first, each.passage.last))
            texts.append(PassageText(where, each.passage.text))
        return texts
