"""Search: the passages of an index that fit a question, by their words and by vectors."""

from collections.abc import Sequence

from localspec.retrieval.index import FoundPassage, Index

_RANKED = 50
"""Passages of each ranking that count."""
_EVEN = 60
"""Added to ranks: so much a first place is like a second. Source: Cormack, Clarke and Buettcher 2009, reciprocal rank fusion."""


def search(index: Index, question: str, most: int) -> list[FoundPassage]:
    """Return the passages that fit a question best, the best first.

    Where the index has vectors, and their model is here, both rankings are fused by reciprocal rank, and scores are its sums.

    Raises:
        LocalspecError: the index cannot be read.
    """
    by_meaning = by_vectors(index, question, _RANKED)
    if not by_meaning:
        return index.search(question, most)
    return fuse([index.search(question, _RANKED), by_meaning])[:most]


def by_vectors(index: Index, question: str, most: int) -> list[FoundPassage]:
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


def fuse(rankings: Sequence[Sequence[FoundPassage]]) -> list[FoundPassage]:
    """Return the passages of several rankings, each by the sum of its reciprocal ranks; what is equal in the order given."""
    scores = dict[tuple[object, ...], float]()
    passages = dict[tuple[object, ...], FoundPassage]()
    for ranking in rankings:
        for rank, each in enumerate(ranking, 1):
            key = each.path, each.passage
            passages.setdefault(key, each)
            scores[key] = scores.get(key, 0.0) + 1 / (_EVEN + rank)
    best = sorted(scores, key=scores.__getitem__, reverse=True)
    return [passages[key]._replace(score=scores[key]) for key in best]
