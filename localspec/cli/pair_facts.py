"""What `check`, `search` and `show` print as JSON: facts by name, sizes in bytes."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from localspec.models.pairs import Fit, PairReport, Side, Suggestion
from localspec.models.registry import Registry

if TYPE_CHECKING:
    from localspec.launch.rows import ModelRow


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


def row_facts(row: "ModelRow", registry: Registry) -> dict[str, Any]:
    """Return what is known of a model, and whether it is on this machine with all that it drafts with."""
    assert row.pair is not None, "every row of the table has one"  # noqa: S101
    return {
        "name": row.name,
        "kind": row.kind,
        "target": row.pair.target,
        "draft": row.pair.draft,
        "draft_model": row.pair.draft_model,
        "good_for": row.about or None,
        "caveat": row.pair.caveat or None,
        "size_bytes": row.size_bytes,
        "draft_bytes": row.draft_bytes,
        "tools": row.tools,
        "thinking": row.thinking,
        "here": row.here,
        "draft_here": row.draft_here,
        "default": row.name == registry.default_pair,
    }


def suggestion_facts(each: Suggestion) -> dict[str, Any]:
    """Return a suggestion."""
    return {**asdict(each), "ratio": round(each.ratio, 2)}
