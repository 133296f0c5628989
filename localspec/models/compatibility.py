"""Judges whether a draft model's token ids mean what the target's mean, from two headers alone.

Same size is not same vocabulary, and same family is not same vocabulary either: files are judged.
A draft whose ids mean other things would cost time and gain nothing.

Only ids travel between the two models. So what forbids a pair is an id with two meanings: another
piece, a piece in another alphabet, or a byte here that is text there. What governs how text is *cut*
into ids (pre-tokenizer, merges, scores) and which ids are special is the target's business alone; it
is compared and reported, and takes the word "identical" away, not the draft.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from localspec.errors import PairMismatch
from localspec.models.gguf import GgufHeader
from localspec.models.gguf_encoding import StringArray
from localspec.models.tokenizer import TokenizerHeader

_BYTE = 6  # llama.cpp's token type of a single byte
_SHOWN_PIECE = 40


class Fit(StrEnum):
    """How two tokenizers relate."""

    IDENTICAL = "identical"
    COMPATIBLE = "compatible"
    INCOMPATIBLE = "incompatible"


@dataclass(frozen=True, slots=True)
class TokenDifference:
    """The lowest id that means different things, and both its pieces."""

    token: int
    target_piece: str
    draft_piece: str


@dataclass(frozen=True, slots=True)
class Compatibility:
    """The judgement of a pair.

    Args:
        verdict: whether the pair may draft.
        reason: what forbids it, in one phrase; empty where nothing does.
        first_difference: the lowest id with two meanings, where there is one.
        overlap_percent: ids with the same piece, in percent of the larger vocabulary.
        shared_vocab: how many ids both vocabularies have.
        notes: differences that do not matter to a draft, one phrase each.
    """

    verdict: Fit
    reason: str
    first_difference: TokenDifference | None
    overlap_percent: float
    shared_vocab: int
    notes: tuple[str, ...] = ()


def compare_tokenizers(target: TokenizerHeader, draft: TokenizerHeader) -> Compatibility:
    """Compare what the ids of two models mean.

    They fit when the kind is the same and all ids that both have carry the same piece; one may be a
    padded or extended copy of the other, whose further ids are masked out of the draft. They are
    identical when their fingerprints are equal.
    """
    shared = min(target.n_vocab, draft.n_vocab)
    differing = []
    if target.tokens != draft.tokens:
        pairs = zip(target.tokens[:shared], draft.tokens[:shared], strict=True)
        differing = [token for token, (ours, theirs) in enumerate(pairs) if ours != theirs]
    first = (
        TokenDifference(differing[0], target.piece(differing[0]), draft.piece(differing[0]))
        if differing
        else None
    )
    reason = _reason(target, draft, first, shared)
    notes = tuple(_differences(target, draft, shared))
    verdict = Fit.INCOMPATIBLE if reason else Fit.COMPATIBLE if notes else Fit.IDENTICAL
    larger = max(target.n_vocab, draft.n_vocab)
    overlap = 100 * (shared - len(differing)) / larger if larger else 0.0
    return Compatibility(verdict, reason, first, overlap, shared, notes)


def require_compatible(target: GgufHeader, draft: GgufHeader) -> Compatibility:
    """Return the judgement of a pair that fits.

    Raises:
        PairMismatch: the pair does not fit; the message names the first difference.
        ModelFileError: one of the files has no tokenizer.
    """
    fit = compare_tokenizers(target.tokenizer, draft.tokenizer)
    if fit.verdict is not Fit.INCOMPATIBLE:
        return fit
    advice = "use --draft lookup or another draft model"
    if fit.first_difference is None:
        raise PairMismatch(
            f"target {target.name} and draft {draft.name} do not fit: {fit.reason}; {advice}"
        )
    different = fit.first_difference
    raise PairMismatch(
        f"token {different.token} is {quoted(different.target_piece)} in {target.name} and "
        f"{quoted(different.draft_piece)} in {draft.name}: their ids mean different things; {advice}"
    )


def _reason(
    target: TokenizerHeader, draft: TokenizerHeader, first: TokenDifference | None, shared: int
) -> str:
    if first is not None:
        return f"token {first.token} has two meanings"
    if shared == 0:
        return "a vocabulary is empty"
    if target.model != draft.model:
        return f"tokenizer kinds are {target.model[:64]!r} and {draft.model[:64]!r}"
    for token, ours, theirs in _differing_types(target, draft, shared):
        if _BYTE in (ours, theirs):  # `<0x0A>` is a line feed for one, six characters for the other
            return f"token {token} ({quoted(target.piece(token))}) is of type {ours} and of type {theirs}"
    return ""


def _differing_types(
    target: TokenizerHeader, draft: TokenizerHeader, shared: int
) -> list[tuple[int, int, int]]:
    """Return shared ids with the types that the files give them, where these differ."""
    if target.types is None or draft.types is None:
        return []
    tokens = np.flatnonzero(target.types[:shared] != draft.types[:shared])
    return [(int(t), int(target.types[t]), int(draft.types[t])) for t in tokens]


def _differences(target: TokenizerHeader, draft: TokenizerHeader, shared: int) -> Iterator[str]:
    """Yield a phrase for each way in which two tokenizers differ that does not forbid a draft."""
    if target.n_vocab != draft.n_vocab:
        yield f"vocabularies have {target.n_vocab} and {draft.n_vocab} tokens"
    if target.pre != draft.pre:
        names = ("none" if pre is None else repr(pre[:64]) for pre in (target.pre, draft.pre))
        yield f"pre-tokenizers are {' and '.join(names)}"
    yield from _merge_notes(target.merges, draft.merges)
    types = _differing_types(target, draft, shared)
    if (target.types is None) != (draft.types is None):
        yield "only one file names the types of its tokens"
    elif types:
        token, ours, theirs = types[0]
        first = f"{token} ({quoted(target.piece(token))}): {ours} and {theirs}"
        yield f"{len(types)} tokens are of other types, the first is {first}"
    yield from _score_notes(target, draft, shared)
    yield from _named("token", target.special_ids, draft.special_ids)
    yield from _named("set to", target.flags, draft.flags)


def _merge_notes(target: StringArray | None, draft: StringArray | None) -> Iterator[str]:
    if target == draft:
        return
    if target is None or draft is None:
        yield "only one file has merges"
        return
    ranks = enumerate(zip(target, draft, strict=False))
    rank = next((rank for rank, (ours, theirs) in ranks if ours != theirs), None)
    if rank is None:
        yield f"there are {len(target)} and {len(draft)} merges, as far as both go the same"
    else:
        yield f"merges differ from number {rank}"


def _score_notes(target: TokenizerHeader, draft: TokenizerHeader, shared: int) -> Iterator[str]:
    if target.scores is None or draft.scores is None:
        if target.scores is not draft.scores:
            yield "only one file has scores"
        return
    ours, theirs = target.scores[:shared], draft.scores[:shared]
    differing = np.flatnonzero((ours != theirs) & ((ours == ours) | (theirs == theirs)))  # noqa: PLR0124 - NaN
    if differing.size:
        token = int(differing[0])
        first = f"{token} ({quoted(target.piece(token))})"
        yield f"{differing.size} scores differ, the first is of token {first}"


def _named(verb: str, target: Mapping[str, int], draft: Mapping[str, int]) -> Iterator[str]:
    for name in sorted(target.keys() | draft.keys()):
        ours, theirs = target.get(name), draft.get(name)
        if ours != theirs:
            yield f"{name[:64]} is {verb} {ours} and {theirs}"


def quoted(piece: str) -> str:
    """Return a piece as it may stand in a one-line message."""
    return repr(piece if len(piece) <= _SHOWN_PIECE else piece[:_SHOWN_PIECE] + "…")
