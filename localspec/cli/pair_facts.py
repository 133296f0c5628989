"""What `localspec pair` says as JSON: facts by name, sizes in bytes."""

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from localspec.models.entries import PairEntry
from localspec.models.pairs import Fit, PairReport, Side, Suggestion
from localspec.models.registry import Registry
from localspec.models.repository import local_file


def check_facts(report: PairReport) -> dict[str, Any]:
    """Return a judgement."""
    fit, different = report.fit, report.fit.first_difference
    return {
        "fits": fit.verdict is not Fit.INCOMPATIBLE,
        "usable": report.can_draft,
        "verdict": fit.verdict,
        "shared_percent": report.shared_percent,
        "reason": fit.reason or None,
        "first_difference": different and asdict(different),
        "overlap_percent": fit.overlap_percent,
        "shared_vocab": fit.shared_vocab,
        "notes": list(fit.notes),
        "chat_templates": report.templates,
        "same_eog": report.same_eog,
        "target": _side_facts(report.target),
        "draft_model": _side_facts(report.draft_model),
    }


def _side_facts(side: Side) -> dict[str, Any]:
    tokenizer = side.header.tokenizer
    return {
        "name": side.name,
        "size_bytes": side.size_bytes,
        "fetched_bytes": side.fetched_bytes,
        "architecture": side.header.architecture,
        "context": side.header.context_length,
        "tokenizer": tokenizer.model,
        "pre_tokenizer": tokenizer.pre,
        "n_vocab": tokenizer.n_vocab,
        "fingerprint": side.fingerprint,
        "eog": sorted(side.eog),
        "has_chat_template": side.header.chat_template is not None,
    }


def pair_facts(each: PairEntry, registry: Registry) -> dict[str, Any]:
    """Return what is known of a pair, and whether it is here."""
    return {
        "name": each.name,
        "target": each.target,
        "draft": each.draft,
        "draft_model": each.draft_model,
        "good_for": each.good_for or None,
        "caveat": each.caveat or None,
        "size_bytes": pair_size(each, registry),
        "tools": calls_tools(each, registry),
        "here": all(_is_here(reference, registry) for reference in _references(each)),
        "default": each.name == registry.default_pair,
    }


def pair_size(each: PairEntry, registry: Registry) -> int | None:
    """Return what a pair's files come to; None where one of them is not in the registry."""
    entries = [registry.find(reference) for reference in _references(each)]
    sizes = [entry.size_bytes for entry in entries if entry is not None and entry.is_known]
    return sum(sizes) if len(sizes) == len(entries) else None


def calls_tools(each: PairEntry, registry: Registry) -> bool | None:
    """Return whether a pair's target can call tools; None where nobody says."""
    entry = registry.find(each.target)
    return None if entry is None else entry.tools


def _is_here(reference: str, registry: Registry) -> bool:
    entry = registry.find(reference)
    if entry is not None:
        return local_file(entry) is not None
    # A path, or a model on the hub that was never pulled.
    with suppress(OSError, RuntimeError):  # RuntimeError: `~` of nobody
        return reference.startswith(("/", "~")) and Path(reference).expanduser().is_file()
    return False


def _references(each: PairEntry) -> list[str]:
    return list(dict.fromkeys([each.target, each.draft_model or each.target]))


def suggestion_facts(each: Suggestion) -> dict[str, Any]:
    """Return a suggestion."""
    return {**asdict(each), "ratio": round(each.ratio, 2)}
