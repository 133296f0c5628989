"""How two tokenizers differ in what does not forbid a draft, one phrase for each way."""

from collections.abc import Mapping

import numpy as np

from localspec.models.gguf_values import StringArray
from localspec.models.tokenizer_header import TokenizerHeader

_SHOWN_PIECE = 40


def differences(target: TokenizerHeader, draft: TokenizerHeader, shared: int) -> list[str]:
    """Return one phrase for each way in which two tokenizers differ beyond the pieces of shared ids."""
    notes = []
    if target.n_vocab != draft.n_vocab:
        notes.append(f"vocabularies have {target.n_vocab} and {draft.n_vocab} tokens")
    if target.pre != draft.pre:
        notes.append(f"pre-tokenizers are {_name(target.pre)} and {_name(draft.pre)}")
    notes += _merge_notes(target.merges, draft.merges)
    notes += _type_notes(target, draft, shared)
    notes += _score_notes(target, draft, shared)
    notes += _named("token", target.special_ids, draft.special_ids)
    notes += _named("set to", target.flags, draft.flags)
    return notes


def _merge_notes(target: StringArray | None, draft: StringArray | None) -> list[str]:
    if target == draft:
        return []
    if target is None or draft is None:
        return ["only one file has merges"]
    ranks = zip(target, draft, strict=False)
    same = next((rank for rank, (ours, theirs) in enumerate(ranks) if ours != theirs), None)
    if same is None:
        return [f"there are {len(target)} and {len(draft)} merges, as far as both go the same"]
    return [f"merges differ from number {same}"]


def _type_notes(target: TokenizerHeader, draft: TokenizerHeader, shared: int) -> list[str]:
    if (target.types is None) != (draft.types is None):
        return ["only one file names the types of its tokens"]
    differing = differing_types(target, draft, shared)
    if not differing:
        return []
    token = differing[0]
    first = f"{token} ({quoted(target.piece(token))})"
    types = f"{type_of(target, token)} and {type_of(draft, token)}"
    return [f"{len(differing)} tokens are of other types, the first is {first}: {types}"]


def _score_notes(target: TokenizerHeader, draft: TokenizerHeader, shared: int) -> list[str]:
    if target.scores is None and draft.scores is None:
        return []
    if target.scores is None or draft.scores is None:
        return ["only one file has scores"]
    ours, theirs = target.scores[:shared], draft.scores[:shared]
    differing = np.flatnonzero((ours != theirs) & ((ours == ours) | (theirs == theirs)))  # noqa: PLR0124 - NaN
    if not differing.size:
        return []
    token = int(differing[0])
    return [
        f"{differing.size} scores differ, the first is of token {token} ({quoted(target.piece(token))})"
    ]


def differing_types(target: TokenizerHeader, draft: TokenizerHeader, shared: int) -> list[int]:
    """Return the shared ids that the files give different types; none where a file names no types."""
    if target.types is None or draft.types is None:
        return []
    return [int(t) for t in np.flatnonzero(target.types[:shared] != draft.types[:shared])]


def type_of(tokenizer: TokenizerHeader, token: int) -> int | None:
    """Return the type of a token, where the file names types."""
    return None if tokenizer.types is None else int(tokenizer.types[token])


def _name(pre: str | None) -> str:
    return "none" if pre is None else repr(pre[:64])


def _named(verb: str, target: Mapping[str, int], draft: Mapping[str, int]) -> list[str]:
    return [
        f"{name[:64]} is {verb} {target.get(name)} and {draft.get(name)}"
        for name in sorted(target.keys() | draft.keys())
        if target.get(name) != draft.get(name)
    ]


def quoted(piece: str) -> str:
    """Return a piece as it may stand in a one-line message."""
    return repr(piece if len(piece) <= _SHOWN_PIECE else piece[:_SHOWN_PIECE] + "…")
