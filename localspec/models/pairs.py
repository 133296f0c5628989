"""Judges whether two models fit, by what their files say, and suggests draft models for a target.

Same size is not same vocabulary, and same family is not same vocabulary either: files are judged, and
of those that are not here, headers at most are fetched. A draft whose ids mean other things would cost
time and gain nothing.

Where only ids travel between the two models, what forbids a pair is an id with two meanings: another
piece, a piece in another alphabet, or a byte here that is text there. Such a draft model can still be named by hand:
then its ids are mapped by their bytes, see `tokenizer.shared_percent`. What governs how text is *cut*
into ids (pre-tokenizer, merges, scores) and which ids are special is the target's business alone; it
is compared and reported, and takes the word "identical" away, not the draft.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localspec.errors import LocalspecError, PairMismatch
from localspec.models.architectures import heads_in, mtp_layers, why_no_draft_model
from localspec.models.entries import ModelEntry, PairEntry, shards_of
from localspec.models.gguf import GgufHeader, merged, read_header, read_model
from localspec.models.names import look_up
from localspec.models.registry import Registry
from localspec.models.repository import find_header, local_file
from localspec.models.tokenizer import TokenizerHeader, fingerprint, shared_percent

_BYTE = 6  # llama.cpp's token type of a single byte
_PIECE_CHARS = 40
LEAST_SHARED_PERCENT = 20.0
"""With less in common hardly any proposal could be one that the target would write."""


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
    shared, larger = sorted((target.n_vocab, draft.n_vocab))
    differing, first = [], None
    if target.tokens.raw != draft.tokens.raw:
        pairs = zip(target.tokens[:shared], draft.tokens[:shared], strict=True)
        differing = [token for token, (ours, theirs) in enumerate(pairs) if ours != theirs]
    if differing:
        token = differing[0]
        first = TokenDifference(token, target.piece(token), draft.piece(token))
    reason, notes = _reason(target, draft, first, shared), _differences(target, draft, shared)
    verdict = Fit.INCOMPATIBLE if reason else Fit.COMPATIBLE if notes else Fit.IDENTICAL
    overlap = 100 * (shared - len(differing)) / larger if larger else 0.0
    return Compatibility(verdict, reason, first, overlap, shared, notes)


def judge_headers(target: GgufHeader, draft: GgufHeader) -> Compatibility:
    """Return the judgement of a pair: of what llama.cpp can draft with what, and of the tokenizers.

    Raises:
        ModelFileError: one of the files has no tokenizer.
    """
    fit = compare_tokenizers(target.tokenizer, draft.tokenizer)
    reason = why_no_draft_model(target, draft)
    if reason is None:
        return fit
    return replace(fit, verdict=Fit.INCOMPATIBLE, reason=reason, first_difference=None)


def percent_across(target: GgufHeader, draft: GgufHeader) -> float:
    """Return how much two vocabularies share where a model is to draft across them; 0 where it can draft in no case."""
    if why_no_draft_model(target, draft) is not None or heads_in(draft) is not None:
        return 0.0
    return shared_percent(target.tokenizer, draft.tokenizer)


def require_compatible(target: GgufHeader, draft: GgufHeader) -> Compatibility:
    """Return the judgement of a pair that fits.

    Raises:
        PairMismatch: the pair does not fit; the message names the first difference.
        ModelFileError: one of the files has no tokenizer.
    """
    fit = judge_headers(target, draft)
    if fit.verdict is not Fit.INCOMPATIBLE:
        return fit
    advice = "use --draft lookup or another draft model"
    if percent_across(target, draft) >= LEAST_SHARED_PERCENT:
        advice += ", or name this one with --draft-model to draft across vocabularies"
    if (different := fit.first_difference) is None:
        raise PairMismatch(
            f"target {target.name} and draft {draft.name} do not fit: {fit.reason}; {advice}"
        )
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
    if target.types is None or draft.types is None:
        return ""
    ours, theirs = target.types[:shared], draft.types[:shared]
    # `<0x0A>` is a line feed for one, six characters for the other.
    tokens = np.flatnonzero((ours == _BYTE) != (theirs == _BYTE))
    if not tokens.size:
        return ""
    token = int(tokens[0])
    return f"token {token} ({quoted(target.piece(token))}) is of type {ours[token]} and of type {theirs[token]}"


def _differences(target: TokenizerHeader, draft: TokenizerHeader, shared: int) -> tuple[str, ...]:
    """Return a phrase for each way in which two tokenizers differ that does not forbid a draft."""
    sizes = f"vocabularies have {target.n_vocab} and {draft.n_vocab} tokens"
    parts = {
        "pre-tokenizers": target.pre == draft.pre,
        "merges": getattr(target.merges, "raw", None) == getattr(draft.merges, "raw", None),
        "types of tokens": _equal(target.types, draft.types, shared),
        "scores": _equal(target.scores, draft.scores, shared),
        "special tokens": target.special_ids == draft.special_ids,
        "flags": target.flags == draft.flags,
    }
    differing = " and ".join(name for name, is_equal in parts.items() if not is_equal)
    parts_differ = f"{differing} differ: those of the target count" if differing else ""
    return tuple(filter(None, (sizes * (target.n_vocab != draft.n_vocab), parts_differ)))


def _equal(
    ours: NDArray[np.generic] | None, theirs: NDArray[np.generic] | None, shared: int
) -> bool:
    if ours is None or theirs is None:
        return ours is theirs
    ours, theirs = (each[:shared].astype(np.float64) for each in (ours, theirs))
    return np.array_equal(ours, theirs, equal_nan=True)


def quoted(piece: str) -> str:
    """Return a piece as it may stand in a one-line message."""
    return repr(piece if len(piece) <= _PIECE_CHARS else piece[:_PIECE_CHARS] + "…")


# A draft model of a third of the target's size cost 0.63 of its step on a CPU, and gained nothing.
_TOO_LARGE = 4
_LARGEST_SHARE = 1.5


@dataclass(frozen=True, slots=True)
class Side:
    """One model of a pair, as far as its header tells.

    Args:
        name: what the user called it.
        header: what its file says.
        size_bytes: of its file or files.
        fetched_bytes: how much was read from the hub for it; 0 for a local file.
        fingerprint: of its tokenizer.
    """

    name: str
    header: GgufHeader
    size_bytes: int
    fetched_bytes: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class PairReport:
    """A judgement, and what was compared apart from the tokenizers.

    Args:
        target: one side.
        draft_model: the other.
        fit: of their ids.
        templates: how their chat templates relate; the target's is the one that is used.
        shared_percent: where ids mean other things, tokens of the draft model's that the target has by other ids.
    """

    target: Side
    draft_model: Side
    fit: Compatibility
    templates: str
    shared_percent: float | None = None

    @property
    def can_draft(self) -> bool:
        """Whether it can, be it across vocabularies."""
        return self.shared_percent is None or self.shared_percent >= LEAST_SHARED_PERCENT


def check_pair(target: str, draft_model: str, registry: Registry) -> PairReport:
    """Return the judgement of two models by what their files say; of those that are not here, headers are read from the hub.

    Args:
        target: a name, a path, or `user/repo:QUANT` on the hub.
        draft_model: one, too.
        registry: the known names.

    Raises:
        ModelUnavailable: no such model, or the hub does not deliver its header.
        ModelFileError: a file is no sound GGUF, or has no tokenizer.
    """
    ours, theirs = _read_side(target, registry), _read_side(draft_model, registry)
    fit, across = judge_headers(ours.header, theirs.header), None
    if fit.verdict is Fit.INCOMPATIBLE:
        across = percent_across(ours.header, theirs.header)
    own, other = ours.header.chat_template, theirs.header.chat_template
    if own == other:
        templates = "none" if own is None else "the same"
    elif own is None or other is None:
        templates = f"only the {'draft model' if own is None else 'target'} has one"
    else:
        templates = "different"
    return PairReport(ours, theirs, fit, templates, across)


def _read_side(reference: str, registry: Registry) -> Side:
    """Read what one model's header says; raises as `check_pair` does."""
    model, fetched = look_up(reference, registry), 0
    if isinstance(model, Path):
        header = read_model(model)
        size_bytes = header.size_bytes
    else:
        first, *others = shards_of(model)
        parts = [find_header(first, reference)]
        if mtp_layers(parts[0][0]):  # the last layers, which are in the last file
            parts += [find_header(each, reference) for each in others]
        header = merged([part for part, _ in parts], reference)
        size_bytes, fetched = model.size_bytes, sum(size for _, size in parts)
    header = replace(header, name=reference)
    return Side(reference, header, size_bytes, fetched, fingerprint(header.tokenizer))


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A draft model for a target.

    Args:
        draft_model: its name.
        verdict: how the tokenizers relate; None where no file of it was read.
        pair: the known pair that has the two, if there is one.
        ratio: how many times larger the target's file is.
        here: whether its file is on this machine.
        reasons: one phrase each, the weightiest first.
    """

    draft_model: str
    verdict: Fit | None
    pair: str | None
    ratio: float
    here: bool
    reasons: tuple[str, ...]


def suggest(target: str, registry: Registry) -> list[Suggestion]:
    """Return the known models that can draft for a target, ranked by fit.

    First what was judged by its files or has the target's fingerprint, then known pairs that are
    not judged yet; within these, known pairs first, and then what is smaller. What was judged and
    does not fit is left out, and so is what nothing speaks for.

    A target of which no size is known is looked up on the hub.

    Raises:
        ModelUnavailable: no such target.
        ModelFileError: its file is no sound GGUF.
    """
    entry, side = registry.find(target), None
    if entry is None or not shards_of(entry)[0].is_known or local_file(shards_of(entry)[0]):
        side = _read_side(target, registry)
    size_bytes = side.size_bytes if side else registry.model(target).size_bytes
    mark = side.fingerprint if side else entry.tokenizer if entry else None
    names = {target, entry.name if entry else target}

    def name(reference: str) -> str:
        known = registry.find(reference)
        return reference if known is None else known.name

    of_target = [each for each in registry.pairs.values() if name(each.target) in names]
    pairs = {name(each.draft_model): each for each in of_target if each.draft_model is not None}
    drafts = [
        _suggestion(each, side, mark, size_bytes / each.size_bytes, pairs.get(each.name))
        for each in registry.models.values()
        if each.name not in names and each.is_known and (each.writes or each.name in pairs)
    ]
    return sorted(filter(None, drafts), key=_rank)


def _suggestion(
    candidate: ModelEntry,
    target: Side | None,
    mark: str | None,
    ratio: float,
    pair: PairEntry | None,
) -> Suggestion | None:
    """Return the suggestion of a candidate; None where it does not fit, or nothing speaks for it."""
    if ratio <= _LARGEST_SHARE:
        return None
    path, verdict, reasons = local_file(shards_of(candidate)[0]), None, []
    if path is not None and target is not None:
        try:
            header = read_header(path)
            fit = judge_headers(target.header, header)
        except LocalspecError:  # a damaged file
            return None
        verdict = fit.verdict
        same = fingerprint(header.tokenizer) == target.fingerprint
        reasons.append("same tokenizer" if same else f"compatible: {'; '.join(fit.notes)}")
    elif mark is not None and candidate.tokenizer == mark:
        verdict = Fit.IDENTICAL
        reasons.append("same tokenizer, by its fingerprint")
    if verdict is Fit.INCOMPATIBLE or (verdict is None and pair is None):
        return None
    if pair is not None:
        good_for = f", good for {pair.good_for}" if pair.good_for else ""
        reasons.append(f"known pair {pair.name}{good_for}")
    if verdict is None:
        reasons.append("not judged yet: `localspec check` reads both headers")
    slow = ", which seldom pays on a CPU" if ratio < _TOO_LARGE else ""
    reasons.append(f"{ratio:.1f} times smaller{slow}")
    name = None if pair is None else pair.name
    return Suggestion(candidate.name, verdict, name, ratio, path is not None, tuple(reasons))


def _rank(suggestion: Suggestion) -> tuple[int, bool, bool, float]:
    fit = {Fit.IDENTICAL: 0, Fit.COMPATIBLE: 1}.get(suggestion.verdict or Fit.INCOMPATIBLE, 2)
    return fit, suggestion.pair is None, suggestion.ratio < _TOO_LARGE, -suggestion.ratio
