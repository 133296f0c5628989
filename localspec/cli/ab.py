"""`localspec ab`: which of two settings is faster on this machine. The verdict on stdout, progress on stderr."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import click

from localspec.bench.ab import Ab, Outcome, run_ab
from localspec.bench.arms import parse_arm
from localspec.bench.prompts import bundled, per_workload, read
from localspec.bench.trial import Trial
from localspec.cli import INTERRUPTED
from localspec.cli.measuring import (
    measured_reply,
    measuring,
    output_options,
    printed,
)
from localspec.cli.option_flags import launch_options, option_flags
from localspec.cli.settings import configured
from localspec.decoding.cancel import Cancelled

_MAX_TOKENS, _PER_WORKLOAD = 96, 4


@click.command()
@click.argument("prompts", required=False)
@click.option("--a", "arm_a", required=True, metavar="ARM", help="One setting, such as off.")
@click.option("--b", "arm_b", required=True, metavar="ARM", help="The other, such as auto.")
@click.option(
    "--pairs",
    type=int,
    metavar="N",
    help="Pairs of runs, 5 or more. Default: as many as the noise requires.",
)
@option_flags(
    "models",
    "exact",
    "sampling",
    "context",
    "device",
    draft="How to draft if an arm does not say.",
    exact="Give the same bytes whatever is drafted.",
    max_tokens="Tokens per answer. Default: 96.",
    seed="Seed of the first round. Default: 1.",
)
@output_options()
def ab(prompts: str | None, **flags: Any) -> int:
    """Compare two settings on PROMPTS, a file of JSON lines with workload and prompt, or on bundled prompts.

    \b
        localspec ab --a off --b auto
        localspec ab --a target=q4.gguf --b target=q8.gguf prompts.jsonl

    An arm is a draft mode (off, auto, lookup:8, model:3), or settings separated by commas: draft,
    pair, target, draft_model, kv_type, threads, ctx, exact. Two arms with the same models share
    their weights; otherwise memory has to hold both.

    Both arms answer every prompt, one right after the other, in changing order. After twelve pairs,
    the noise decides how many more are needed to detect a slow-down of 5 %. Nothing is recorded.
    """  # noqa: D301 - click keeps lines behind a \b
    flags = configured(flags)
    request = _request(prompts, flags)
    try:
        with measuring(quiet=flags["quiet"]) as run:
            found = run_ab(request, run.cancel, run.watchers, run.tell)
    except Cancelled:
        return INTERRUPTED
    if found.comparison is None:
        return INTERRUPTED
    lines = [json.dumps(_document(request, found))] if flags["json_"] else _lines(request, found)
    return printed("\n".join(lines), whole=len(found.pairs) >= found.planned)


def _request(prompts: str | None, flags: dict[str, Any]) -> Ab:
    usual = launch_options(flags)
    return Ab(
        a=parse_arm(flags["arm_a"], usual),
        b=parse_arm(flags["arm_b"], usual),
        prompts=per_workload(bundled(), _PER_WORKLOAD) if prompts is None else read(Path(prompts)),
        asked=measured_reply(flags, _MAX_TOKENS),
        pairs=flags["pairs"],
    )


def _lines(request: Ab, found: Outcome) -> Iterator[str]:
    assert found.comparison is not None  # noqa: S101 - asked before
    yield found.comparison.verdict(f"a ({request.a.text})", f"b ({request.b.text})")
    for name, arm, trials in (
        ("a", request.a, [pair.a for pair in found.pairs]),
        ("b", request.b, [pair.b for pair in found.pairs]),
    ):
        yield f"{name} ({arm.text}): {_speed(trials):.1f} tokens/s, {_accepted(trials)}"
    by_kind: dict[str, list[float]] = {}
    for pair in found.pairs:
        by_kind.setdefault(pair.workload, []).append(pair.value)
    if len(by_kind) > 1:
        told = (f"{kind} {math.exp(median(values)):.2f}" for kind, values in by_kind.items())
        yield f"median ratio by kind of text, from a few pairs each: {', '.join(told)}"
    same = sum(pair.a.tokens == pair.b.tokens for pair in found.pairs)
    yield f"the same text in {same} of {len(found.pairs)} pairs"
    if len(found.pairs) < found.planned:
        yield f"interrupted after {len(found.pairs)} of {found.planned} pairs"


def _speed(trials: list[Trial]) -> float:
    return median(trial.n_tokens / trial.wall_s for trial in trials)


def _accepted(trials: list[Trial]) -> str:
    drafted = sum(trial.drafted for trial in trials)
    if drafted == 0:
        return "nothing drafted"
    return f"{sum(trial.accepted for trial in trials) / drafted:.0%} of {drafted} drafted tokens accepted"


def _document(request: Ab, found: Outcome) -> dict[str, Any]:
    comparison = found.comparison
    assert comparison is not None  # noqa: S101 - asked before
    return {
        "a": request.a.text,
        "b": request.b.text,
        "ratio": round(comparison.ratio, 6),
        "low": round(comparison.low, 6),
        "high": round(comparison.high, 6),
        "differs": comparison.differs,
        "verdict": comparison.verdict("a", "b"),
        "pairs": [
            {
                "workload": pair.workload,
                "log_ratio": round(pair.value, 6),
                "a_tokens_per_s": round(pair.a.n_tokens / pair.a.wall_s, 3),
                "b_tokens_per_s": round(pair.b.n_tokens / pair.b.wall_s, 3),
                "same_text": pair.a.tokens == pair.b.tokens,
            }
            for pair in found.pairs
        ],
        "pairs_planned": found.planned,
    }
