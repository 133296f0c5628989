"""Suggests draft models for a target, best first, each with its reasons. Fetches no weights."""

from collections.abc import Iterator
from dataclasses import dataclass

from localspec.errors import LocalspecError
from localspec.models.entries import ModelEntry, PairEntry
from localspec.models.fingerprint import fingerprint
from localspec.models.gguf_header import read_header
from localspec.models.headers import local_file
from localspec.models.pair_check import Side, read_side
from localspec.models.registry import Registry
from localspec.models.tokenizer import Fit, compare_tokenizers

# A draft model of a third of the target's size cost 0.63 of its step on a CPU, and gained nothing.
_TOO_LARGE = 4
_LARGEST_SHARE = 1.5


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
    side = _readable(target, registry)
    entry = registry.find(target)
    size_bytes = side.size_bytes if side is not None else registry.model(target).size_bytes
    mark = side.fingerprint if side is not None else entry.tokenizer if entry is not None else None
    names = {target} | ({entry.name} if entry is not None else set())
    pairs = {
        registry_name(pair.draft_model, registry): pair
        for pair in registry.pairs.values()
        if pair.draft_model is not None and registry_name(pair.target, registry) in names
    }
    found = [
        suggestion
        for candidate in registry.models.values()
        if candidate.name not in names
        and candidate.is_known
        and candidate.size_bytes * _LARGEST_SHARE < size_bytes
        for suggestion in _judged(candidate, side, mark, size_bytes, pairs.get(candidate.name))
    ]
    return sorted(found, key=_rank)


def registry_name(reference: str, registry: Registry) -> str:
    """Return the name under which the registry lists a model, or the reference itself."""
    entry = registry.find(reference)
    return reference if entry is None else entry.name


def _readable(target: str, registry: Registry) -> Side | None:
    """Return what the target's header says; None for a known model that is not here."""
    entry = registry.find(target)
    first = None if entry is None else entry.shards[0] if entry.shards else entry
    if first is not None and first.is_known and local_file(first) is None:
        return None
    return read_side(target, registry)


def _judged(
    candidate: ModelEntry,
    target: Side | None,
    mark: str | None,
    size_bytes: int,
    pair: PairEntry | None,
) -> Iterator[Suggestion]:
    path = local_file(candidate.shards[0] if candidate.shards else candidate)
    verdict, reasons = None, []
    if path is not None and target is not None:
        try:
            tokenizer = read_header(path).tokenizer
        except LocalspecError:  # a damaged file drafts for nobody
            return
        fit = compare_tokenizers(target.header.tokenizer, tokenizer)
        if fit.verdict is Fit.INCOMPATIBLE:
            return
        verdict = fit.verdict
        same = fingerprint(tokenizer) == target.fingerprint
        reasons.append("same tokenizer" if same else f"compatible: {'; '.join(fit.notes)}")
    elif mark is not None and candidate.tokenizer == mark:
        verdict = Fit.IDENTICAL
        reasons.append("same tokenizer, by its fingerprint")
    elif pair is None:
        return
    if pair is not None:
        good_for = f", good for {pair.good_for}" if pair.good_for else ""
        reasons.append(f"known pair {pair.name}{good_for}")
    if verdict is None:
        reasons.append("not judged yet: `localspec pair check` reads both headers")
    ratio = size_bytes / candidate.size_bytes
    slow = ratio < _TOO_LARGE
    reasons.append(f"{ratio:.1f} times smaller" + (", which seldom pays on a CPU" if slow else ""))
    name = None if pair is None else pair.name
    yield Suggestion(candidate.name, verdict, name, ratio, path is not None, tuple(reasons))


def _rank(suggestion: Suggestion) -> tuple[int, bool, bool, float]:
    fit = {Fit.IDENTICAL: 0, Fit.COMPATIBLE: 1}.get(suggestion.verdict or Fit.INCOMPATIBLE, 2)
    return fit, suggestion.pair is None, suggestion.ratio < _TOO_LARGE, -suggestion.ratio
