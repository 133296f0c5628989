"""Judges whether a draft model's token ids mean what the target's mean, from two headers alone.

Same size is not same vocabulary, and same family is not same vocabulary either: files are judged.
A draft whose ids mean other things would cost time and gain nothing.

Only ids travel between the two models. So what forbids a pair is an id with two meanings: another
piece, a piece in another alphabet, or a byte here that is text there. What governs how text is *cut*
into ids (pre-tokenizer, merges, scores) and which ids are special is the target's business alone; it
is compared and reported, and takes the word "identical" away, not the draft.
"""

from dataclasses import dataclass
from enum import StrEnum

from localspec.errors import PairMismatch
from localspec.models.gguf_header import GgufHeader
from localspec.models.gguf_values import StringArray
from localspec.models.tokenizer_header import TokenizerHeader
from localspec.models.tokenizer_notes import differences, differing_types, quoted, type_of

_BYTE = 6  # llama.cpp's token type of a single byte


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
    differing = _differing_ids(target.tokens, draft.tokens, shared)
    first = (
        TokenDifference(differing[0], target.piece(differing[0]), draft.piece(differing[0]))
        if differing
        else None
    )
    reason = _reason(target, draft, first, shared)
    notes = tuple(differences(target, draft, shared))
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
    for token in differing_types(target, draft, shared):
        ours, theirs = type_of(target, token), type_of(draft, token)
        if _BYTE in {
            ours,
            theirs,
        }:  # `<0x0A>` is a line feed for one and six characters for the other
            return f"token {token} ({quoted(target.piece(token))}) is of type {ours} and of type {theirs}"
    return ""
