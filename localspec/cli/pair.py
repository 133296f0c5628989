"""`localspec pair`: which models draft for which, known before anything is downloaded."""

import json
import shutil
import sys
from collections.abc import Iterable

import click

from localspec.cli.completions import complete_models
from localspec.cli.pair_facts import check_facts, row_facts, suggestion_facts
from localspec.display import cut, table
from localspec.errors import PairMismatch
from localspec.models.architectures import how_it_drafts
from localspec.models.pairs import PairReport, check_pair, quoted, suggest
from localspec.models.registry import load_registry
from localspec.storage.files import size_text

_JSON = click.option("--json", "json_", is_flag=True, help="Print JSON.")


@click.group(invoke_without_command=True)
@click.pass_context
def pair(context: click.Context) -> None:
    """Check, list and suggest pairs of models."""
    if context.invoked_subcommand is None:
        context.invoke(list_)


@pair.command()
@click.argument("target", shell_complete=complete_models)
@click.argument("draft_model", shell_complete=complete_models)
@_JSON
def check(target: str, draft_model: str, json_: bool) -> int:
    """Check whether DRAFT_MODEL can draft for TARGET.

    Both are names, paths, or user/repo:QUANT on the hub. If a file is not on this machine, only its
    header is downloaded. Models with different vocabularies may still be usable, less well. The exit code is 4
    if they are not.
    """
    report = check_pair(target, draft_model, load_registry())
    click.echo(_json(check_facts(report)) if json_ else "\n".join(_check_lines(report)))
    return 0 if report.can_draft else PairMismatch.exit_code


@pair.command("list")
@_JSON
def list_(json_: bool) -> None:
    """List the known pairs, smallest first.

    `*` marks models on this machine.
    """
    from localspec.launch.rows import model_rows  # noqa: PLC0415 - not for `--help`

    registry = load_registry()
    pairs = [each for each in model_rows(registry) if each.name in registry.pairs]
    if json_:
        click.echo(_json([row_facts(each, registry) for each in pairs]))
        return
    rows = [("PAIR", "TARGET", "DRAFT", "SIZE", "GOOD FOR")]
    for each in pairs:
        pair, here = registry.pairs[each.name], "*" if each.here else ""
        drafts = pair.draft_model or pair.draft
        rows.append((here + each.name, pair.target, drafts, each.sizes, each.about))
    width = shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else None
    for line in table(rows):
        click.echo(line if width is None else cut(line, width))


@pair.command("suggest")
@click.argument("target", shell_complete=complete_models)
@_JSON
def suggest_(target: str, json_: bool) -> None:
    """Suggest draft models for TARGET, best first."""
    found = suggest(target, load_registry())
    if json_:
        click.echo(_json([suggestion_facts(each) for each in found]))
    elif found:
        click.echo("\n".join(table((each.draft_model, "; ".join(each.reasons)) for each in found)))
    if not found:
        raise PairMismatch(
            f"no known model can draft for {target}: use --draft lookup, "
            "or check one of your own with `localspec pair check`"
        )


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


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=True, indent=2)
