"""`localspec check`: whether one model can draft for another, known before anything is downloaded."""

import json
from collections.abc import Iterable

import click

from localspec.cli.completions import complete_models
from localspec.cli.pair_facts import check_facts
from localspec.errors import PairMismatch
from localspec.models.architectures import how_it_drafts
from localspec.models.pairs import PairReport, check_pair, quoted
from localspec.models.registry import load_registry
from localspec.storage.files import size_text


@click.command()
@click.argument("target", shell_complete=complete_models)
@click.argument("draft_model", shell_complete=complete_models)
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def check(target: str, draft_model: str, json_: bool) -> int:
    """Check whether DRAFT_MODEL can draft for TARGET.

    Both are names, paths, or user/repo:QUANT on the hub. If a file is not on this machine, only its
    header is downloaded. Models with different vocabularies may still be usable, less well. The exit code is 4
    if they are not.
    """
    report = check_pair(target, draft_model, load_registry())
    if json_:
        click.echo(json.dumps(check_facts(report), indent=2))
    else:
        click.echo("\n".join(_check_lines(report)))
    return 0 if report.can_draft else PairMismatch.exit_code


def _check_lines(report: PairReport) -> Iterable[str]:
    fit, target, draft_model = report.fit, report.target, report.draft_model
    across = report.can_draft and report.shared_percent is not None
    verdict = "usable across vocabularies" if across else fit.verdict
    can = "can" if report.can_draft else "cannot"
    yield f"{verdict}: {draft_model.name} {can} draft for {target.name}"
    shared = ""
    if report.shared_percent is not None:
        shared = f"{report.shared_percent:.1f} % of the draft model's tokens are the target's"
        yield f"  shared            {shared}" + (", expect less to be accepted" if across else "")
    if across:
        yield "  use               name it with --draft-model: it is never chosen by itself"
    different = fit.first_difference
    if different is not None:
        pieces = f"{quoted(different.target_piece)} and {quoted(different.draft_piece)}"
        yield f"  first difference  token {different.token} is {pieces}"
    elif fit.reason:
        yield f"  reason            {fit.reason}"
    yield (
        f"  tokens            {target.header.tokenizer.n_vocab} and "
        f"{draft_model.header.tokenizer.n_vocab}, {fit.overlap_percent:.4g} % overlap"
        + (" of number and text, where `shared` counts the text alone" if shared else "")
    )
    for note in () if different is not None else fit.notes:
        yield f"  note              {note}"
    for side in (target, draft_model):
        special = how_it_drafts(side.header)
        if special is not None:
            yield f"  drafting          {side.name}: {special}"
    yield f"  end tokens        {'the same' if report.same_eog else 'different; those of the target count'}"
    yield f"  chat templates    {report.templates}"
    yield f"  fingerprints      {target.fingerprint[:16]} and {draft_model.fingerprint[:16]}"
    fetched = target.fetched_bytes + draft_model.fetched_bytes
    if fetched:
        yield f"  fetched           {size_text(fetched)} of headers"
