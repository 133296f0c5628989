"""Retriever: which index a question is about, and the passages that fit it, by their words and by vectors."""

import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from localspec.display import printable
from localspec.messages import DocumentPart, Message
from localspec.options import PASSAGE_TOKENS
from localspec.retrieval.citing import PassageText, as_documents, passages_in, within

if TYPE_CHECKING:
    from localspec.retrieval.index import FoundPassage, Index
    from localspec.toolbox.functions import Functions

_MENTION = re.compile(r"@([a-z0-9][a-z0-9._-]*)\s+(?=\S)")
_LOOKED_AT = 20
_RANKED = 50
"""Passages of each ranking that count."""
_EVEN = 60
"""Added to ranks: so much a first place is like a second. Source: Cormack, Clarke and Buettcher 2009, reciprocal rank fusion."""


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
            from localspec.retrieval.index import open_index  # noqa: PLC0415 - sqlite3, which few need

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
        if mention:
            from localspec.retrieval.index import index_names  # noqa: PLC0415 - sqlite3, which few need

            if mention[1] in index_names():
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

    def toolbox(self) -> "Functions":
        """Return `search_docs`, by which a model searches by itself; it needs no permission, since the user names the index."""
        from localspec.toolbox.functions import Functions  # noqa: PLC0415 - most conversations call nothing
        from localspec.toolbox.toolbox import Access  # noqa: PLC0415

        def search_docs(question: str) -> str:
            """Search the user's documents for passages, each under its path and lines.

            Args:
                question: what to look for, in words that the documents may use
            """
            texts = within(self._passages(question), self.tokens)
            return "\n\n".join(f"{each.where}\n{each.text}" for each in texts) or "[nothing fits]"

        return Functions([search_docs], Access.NOTHING)

    def _passages(self, question: str) -> list[PassageText]:
        """Return more passages than fit into any context, the best first.

        Raises:
            LocalspecError: the index is not there, or cannot be read.
        """
        from localspec.retrieval.index import open_index  # noqa: PLC0415 - sqlite3, which few need
        from localspec.retrieval.reading import place  # noqa: PLC0415
        from localspec.storage.paths import brief  # noqa: PLC0415

        with closing(open_index(self.name)) as index:
            found = search(index, question, _LOOKED_AT)
        texts = list[PassageText]()
        for each in found:
            where = printable(place(brief(each.path), each.passage.first, each.passage.last))
            # As it can stand in the tag of a document.
            texts.append(PassageText(where.replace('"', "?"), each.passage.text))
        return texts


def search(index: "Index", question: str, most: int) -> "list[FoundPassage]":
    """Return the passages that fit a question best, the best first.

    Where the index has vectors, and their model is here, both rankings are fused by reciprocal rank, and scores are its sums.

    Raises:
        LocalspecError: the index cannot be read.
    """
    by_meaning = by_vectors(index, question, _RANKED)
    if not by_meaning:
        return index.search(question, most)
    return fuse([index.search(question, _RANKED), by_meaning])[:most]


def by_vectors(index: "Index", question: str, most: int) -> "list[FoundPassage]":
    """Return the passages whose vectors are nearest to a question's; none without vectors, without their model, or where it changes meanwhile."""
    model = index.vector_model()
    if model is None or not question.strip():
        return []
    from localspec.retrieval.embedding import nearest, text_vectors  # noqa: PLC0415 - few indexes have vectors

    make = text_vectors(model)
    if make is None:
        return []
    vector = make.of_question(question)
    with index.reading():
        if index.vector_model() != model:
            return []
        return [index.passage(*each) for each in nearest(index, vector, most)]


def fuse(rankings: "Sequence[Sequence[FoundPassage]]") -> "list[FoundPassage]":
    """Return the passages of several rankings, each by the sum of its reciprocal ranks; what is equal in the order given."""
    scores = dict[tuple[object, ...], float]()
    passages = dict[tuple[object, ...], "FoundPassage"]()
    for ranking in rankings:
        for rank, each in enumerate(ranking, 1):
            key = each.path, each.passage
            passages.setdefault(key, each)
            scores[key] = scores.get(key, 0.0) + 1 / (_EVEN + rank)
    best = sorted(scores, key=scores.__getitem__, reverse=True)
    return [replace(passages[key], score=scores[key]) for key in best]
