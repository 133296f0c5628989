"""Judges whether a draft model's token ids mean what the target's mean, from two headers alone.

Same size is not same vocabulary, and same family is not same vocabulary either: files are judged.
A draft whose ids mean other things would cost time and gain nothing. Only ids travel between the
two models, so special ids and flags may differ; they are reported.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from localspec.errors import PairMismatch
from localspec.models.gguf_header import GgufHeader
from localspec.models.gguf_values import StringArray
from localspec.models.tokenizer_header import TokenizerHeader

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

    They fit when kind, pre-tokenizer and merges are the same and all ids that both have carry the
    same piece and type; one may be a padded or extended copy of the other.
    """
    shared = min(target.n_vocab, draft.n_vocab)
    differing = _differing_ids(target.tokens, draft.tokens, shared)
    first = (
        TokenDifference(differing[0], target.piece(differing[0]), draft.piece(differing[0]))
        if differing
        else None
    )
    reason = _reason(target, draft, first, shared)
    notes = tuple(_notes(target, draft))
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
        f"token {different.token} is {_quoted(different.target_piece)} in {target.name} and "
        f"{_quoted(different.draft_piece)} in {draft.name}: their ids mean different things; {advice}"
    )


def _quoted(piece: str) -> str:
    return repr(piece if len(piece) <= _SHOWN_PIECE else piece[:_SHOWN_PIECE] + "…")


def _differing_ids(target: StringArray, draft: StringArray, shared: int) -> list[int]:
    if target == draft:
        return []
    pairs = zip(target[:shared], draft[:shared], strict=True)
    return [token for token, (ours, theirs) in enumerate(pairs) if ours != theirs]


def _reason(
    target: TokenizerHeader, draft: TokenizerHeader, first: TokenDifference | None, shared: int
) -> str:
    if first is not None:
        return f"token {first.token} has two meanings"
    if shared == 0:
        return "a vocabulary is empty"
    if target.model != draft.model:
        return f"tokenizer kinds are {target.model[:64]!r} and {draft.model[:64]!r}"
    if target.pre and draft.pre and target.pre != draft.pre:
        return f"pre-tokenizers are {target.pre[:64]!r} and {draft.pre[:64]!r}"
    if target.merges != draft.merges:
        return "their merges differ"
    return _type_reason(target, draft, shared)


def _type_reason(target: TokenizerHeader, draft: TokenizerHeader, shared: int) -> str:
    if target.types is None or draft.types is None:
        return ""
    differing = np.flatnonzero(target.types[:shared] != draft.types[:shared])
    if not differing.size:
        return ""
    token = int(differing[0])
    return (
        f"token {token} ({_quoted(target.piece(token))}) is of type "
        f"{target.types[token]} and of type {draft.types[token]}"
    )


def _notes(target: TokenizerHeader, draft: TokenizerHeader) -> list[str]:
    notes = []
    if target.n_vocab != draft.n_vocab:
        notes.append(f"vocabularies have {target.n_vocab} and {draft.n_vocab} tokens")
    if target.pre != draft.pre:
        notes.append(f"pre-tokenizers are {target.pre!r} and {draft.pre!r}")
    if (target.types is None) != (draft.types is None):
        notes.append("only one file names the types of its tokens")
    notes += _named("token", target.special_ids, draft.special_ids)
    notes += _named("set to", target.flags, draft.flags)
    return notes


def _named(verb: str, target: Mapping[str, int], draft: Mapping[str, int]) -> list[str]:
    return [
        f"{name} is {verb} {target.get(name)} and {draft.get(name)}"
        for name in sorted(target.keys() | draft.keys())
        if target.get(name) != draft.get(name)
    ]
