"""`localspec search`, `list`, `show`, `check`, `rm` and `import`: the models that there are, and those on this machine."""

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from localspec.chat.call_finder import offers_tools
from localspec.cli.options import complete_models, json_option, require_model
from localspec.cli.progress import fields, print_json, print_table
from localspec.config.own import write_keys
from localspec.errors import LocalspecError, ModelUnavailable, PairMismatch, UsageError
from localspec.launch.rows import ModelRow, model_rows
from localspec.models.architectures import how_it_drafts
from localspec.models.entries import MODEL_NAME
from localspec.models.gguf import read_model
from localspec.models.inventory import (
    Fact,
    Item,
    Removal,
    facts_of,
    inventory,
    plan_removal,
    remove,
)
from localspec.models.names import import_file
from localspec.models.pairs import Fit, PairReport, Side, check_pair, quoted, suggest
from localspec.models.registry import USER_FILE, Registry, load_registry
from localspec.models.store import Store
from localspec.storage.files import size_text
from localspec.storage.paths import config_dir, data_dir, shown


@click.command()
@click.argument("words", nargs=-1)
@json_option
def search(words: tuple[str, ...], json_: bool) -> None:
    """List the models that match all WORDS, or all models, smallest first: chat models, then draft and embedding models.

    Searches names and what a model is good for. `*` marks models on this machine, `tools` those
    that can call tools, `thinking` those that think before they answer.
    """
    registry, text = load_registry(), " ".join(words).lower()
    rows = model_rows(registry)
    matches = [each for each in rows if all(word in each.words for word in text.split())]
    if text and not matches:
        family = registry.like(text)
        matches = [each for each in rows if each.name in family]
    if not matches:
        registry.require(" ".join(words))
        raise ModelUnavailable(f"nothing matches {' '.join(words)[:80]!r}: try fewer words")
    if json_:
        print_json([_row_facts(each, registry) for each in matches])
        return
    print_table(each.cells(" · ".join(filter(None, (each.about, each.marks)))) for each in matches)


@click.command(name="list")
@json_option
def list_(json_: bool) -> None:
    """List the models on this machine: name, size, who owns the file, and what it is if no chat model.

    Files in the `store` are localspec's own. `hub cache` and `link` are files of other programs or
    of yours, which are never deleted. `unfinished` downloads resume with the next pull.
    """
    registry = load_registry()
    items = inventory(registry, Store(data_dir()))
    if json_:
        print_json([_document(item) for item in items])
        return
    if not items:
        click.echo(
            "no models yet: download one with `localspec pull NAME`; "
            "`localspec recommend` suggests some",
            err=True,
        )
    rows = {row.name: row for row in model_rows(registry)}
    lines = []
    for item in items:
        row = rows.get(item.entry.full_name) or rows.get(item.name)
        kind = row.about if row is not None and row.kind not in {"chat", "code"} else ""
        lines.append((item.name, f"{_size(item):>17}", item.where, kind))
    print_table(lines)


@click.command()
@click.argument("name", shell_complete=complete_models)
@json_option
def show(name: str, json_: bool) -> None:
    """Show what the registry and the file itself say about NAME, a model or a path.

    `tools` says whether the model can call tools: whether its chat template offers them to it.
    `drafts` are the known models that can draft for it, best first; `localspec check` judges others.
    """
    registry = load_registry()
    facts: dict[str, Fact] = {**facts_of(name, registry, Store(data_dir()))}
    if isinstance(facts.get("path"), str):
        facts["tools"] = offers_tools(read_model(Path(str(facts["path"]))).chat_template)
    row = _row(registry.name(name), str(facts["name"]), registry)
    if row is not None and row.pair is not None:
        facts |= {"good_for": row.about or None, "thinking": row.thinking}
        facts |= {"draft_model": row.pair.draft_model, "draft_bytes": row.draft_bytes}
    # The hub is not asked for it.
    drafts = suggest(name, registry) if registry.find(name) or facts.get("here", True) else []
    if json_:
        facts_of_drafts = [{**asdict(each), "ratio": round(each.ratio, 2)} for each in drafts]
        print_json({**facts, "drafts": facts_of_drafts})
        return
    size = facts.pop("size_bytes", None)
    facts.pop("draft_bytes", None)
    known = row.sizes if row is not None else size_text(size) if isinstance(size, int) else None
    lines = {"name": facts.pop("name"), "size": known, **facts}
    width = max(map(len, lines))
    for key, value in lines.items():
        if value is not None:
            click.echo(f"{key:<{width}}  {_text(key, value)}")
    for at, each in enumerate(drafts):
        reasons = "; ".join(each.reasons)
        click.echo(f"{'' if at else 'drafts':<{width}}  {each.draft_model}: {reasons}")


def _row(name: str, model: str, registry: Registry) -> ModelRow | None:
    """Return the row of a name, or else the first one of that model; None of a file that has no name."""
    rows = model_rows(registry)
    of_model = [row for row in rows if row.pair is not None and row.pair.target == model]
    return next(iter([*(row for row in rows if row.name == name), *of_model]), None)


@click.command()
@click.argument("target", shell_complete=complete_models)
@click.argument("draft_model", shell_complete=complete_models)
@json_option
def check(target: str, draft_model: str, json_: bool) -> int:
    """Check whether DRAFT_MODEL can draft for TARGET.

    Both are names, paths, or user/repo:QUANT on the hub. If a file is not on this machine, only its
    header is downloaded. Models with different vocabularies may still be usable, less well. The exit code is 4
    if they are not.
    """
    report = check_pair(target, draft_model, load_registry())
    if json_:
        print_json(_check_facts(report))
    else:
        click.echo("\n".join(_check_lines(report)))
    return 0 if report.can_draft else PairMismatch.exit_code


def _check_lines(report: PairReport) -> Iterator[str]:
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
    yield f"  chat templates    {report.templates}"
    yield f"  fingerprints      {target.fingerprint[:16]} and {draft_model.fingerprint[:16]}"
    fetched = target.fetched_bytes + draft_model.fetched_bytes
    if fetched:
        yield f"  fetched           {size_text(fetched)} of headers"


def _check_facts(report: PairReport) -> dict[str, Any]:
    """Return a judgement."""
    fit, different = report.fit, report.fit.first_difference
    return {
        "fits": fit.verdict is not Fit.INCOMPATIBLE,
        "usable": report.can_draft,
        "verdict": fit.verdict,
        "shared_percent": report.shared_percent,
        "reason": fit.reason or None,
        "first_difference": different and asdict(different),
        **fields(fit, "overlap_percent shared_vocab"),
        "notes": list(fit.notes),
        "chat_templates": report.templates,
        "target": _side_facts(report.target),
        "draft_model": _side_facts(report.draft_model),
    }


def _side_facts(side: Side) -> dict[str, Any]:
    header, tokenizer = side.header, side.header.tokenizer
    return {
        **fields(side, "name size_bytes fetched_bytes"),
        "architecture": header.architecture,
        "context": header.context_length,
        "tokenizer": tokenizer.model,
        "pre_tokenizer": tokenizer.pre,
        "n_vocab": tokenizer.n_vocab,
        "fingerprint": side.fingerprint,
        "has_chat_template": header.chat_template is not None,
    }


def _row_facts(row: ModelRow, registry: Registry) -> dict[str, Any]:
    """Return what is known of a model, and whether it is on this machine with all that it drafts with."""
    assert row.pair is not None, "every row of the table has one"  # noqa: S101
    return {
        **fields(row, "name kind"),
        **fields(row.pair, "target draft draft_model"),
        "good_for": row.about or None,
        "caveat": row.pair.caveat or None,
        **fields(row, "size_bytes draft_bytes tools thinking here draft_here"),
        "default": row.name == registry.default_pair,
    }


@click.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=complete_models)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def rm(names: tuple[str, ...], yes: bool) -> None:
    """Remove each NAME, a pair, a model or an imported file, from this machine.

    Never deletes files that another model uses, files in the hub's cache, or files that you
    imported by link: for these, only the name is removed; so it is for a name that `import` gave a
    model that has another.
    """
    registry, store = load_registry(), Store(data_dir())
    removal = plan_removal([each for each in names if not _is_own_alias(each)], registry, store)
    for each in filter(_is_own_alias, names):
        write_keys(config_dir() / USER_FILE, {each: None}, "aliases")
        click.echo(f"removed the name {each}; {registry.aliases[each]} stays")
    if removal.items and not yes and sys.stdin.isatty():
        what = ", ".join(item.name for item in removal.items)
        click.confirm(f"remove {what} ({size_text(removal.frees_bytes)})?", abort=True, err=True)
    lines = [f"removed {item.name}{_what_stays(item, removal)}" for item in removal.items]
    freed = remove(removal, store)
    if removal.items:
        lines.append(f"freed {freed} bytes ({size_text(freed)})")
    for line in lines:
        click.echo(line)
    if removal.stays:
        reasons = "; ".join(f"{item.name} stays, because {why}" for item, why in removal.stays)
        raise LocalspecError(f"{reasons}: name that as well to remove both")


@click.command(name="import")
@click.argument("model", metavar="[PATH|MODEL]", required=False, shell_complete=complete_models)
@click.option("--name", help="Its name; required for a MODEL. Default: the file's name.")
@click.option("--copy", is_flag=True, help="Copy the file instead of pointing to it.")
def import_(model: str | None, name: str | None, copy: bool) -> None:
    """Give a GGUF file, or a model that has a name, a name that every command understands.

    \b
        localspec import ~/models/my-7b.gguf --name mine
        localspec import qwen3-4b --name fast

    A file is checked first. Without either, the names that stand for other models are listed;
    `localspec rm fast` removes a name that you gave.
    """  # noqa: D301 - click keeps lines behind a \b
    registry = load_registry()
    if model is None:
        for each, model_name in registry.aliases.items():
            click.echo(f"{each} = {model_name}")
    elif Path(model).expanduser().is_file() or not registry.knows(model):
        imported = import_file(
            Path(model).expanduser(), name, registry, Store(data_dir()), copy=copy
        )
        click.echo(imported.name)
    else:
        _name(registry, name, model)
        click.echo(name)


def _is_own_alias(name: str) -> bool:
    """Return whether the user's own file has another name for a model."""
    file = config_dir() / USER_FILE
    return file.exists() and name in tomllib.loads(file.read_text()).get("aliases", {})


def _name(registry: Registry, name: str | None, model: str) -> None:
    """Make a name mean a known model."""
    if name is None:
        raise UsageError(f"{model} is a known model: give it another name with --name")
    if not re.fullmatch(MODEL_NAME, name):
        raise UsageError(f"{name[:80]!r} cannot be a name: use letters, digits, '.', '-', '_'")
    if name not in registry.aliases and registry.knows(name):
        raise UsageError(f"{name} is already the name of a model: choose another name")
    write_keys(config_dir() / USER_FILE, {name: registry.name(require_model(model))}, "aliases")


def _document(item: Item) -> Mapping[str, object]:
    return {
        "name": item.name,
        "size_bytes": item.entry.size_bytes,
        "here_bytes": item.here_bytes,
        "where": item.where,
        "path": None if item.path is None else str(item.path),
        "sha256": item.entry.sha256,
        "imported": item.imported,
        "learnt": None if item.entry.pin is None else item.entry.pin.date,
    }


def _size(item: Item) -> str:
    size = size_text(item.entry.size_bytes)
    return f"{size_text(item.here_bytes)} of {size}" if item.where == "unfinished" else size


_TOKENIZERS = {"gpt2": "BPE", "llama": "SentencePiece", "bert": "WordPiece", "t5": "Unigram"}
_SOURCES = {"hub": "Hugging Face", "wheels": "Python packages"}


def _text(key: str, value: object) -> str:
    match key, value:
        case "weights", int(count):
            return f"{count / 1e9:.2f} billion" if count >= 1e9 else f"{count / 1e6:.0f} million"
        case _, bool(has):
            return "yes" if has else "no"
        case "here_bytes", int(size):
            return size_text(size)
        case "tokenizer", str(name):
            kind, _, rules = name.partition(" ")
            return f"{_TOKENIZERS.get(kind, kind)}{rules and f', splits words like {rules}'}"
        case "sources", list(sources):
            parts = (source.partition(" ") for source in dict.fromkeys(sources))
            return "; ".join(
                f"{_SOURCES[kind]}: {name.replace('==', ' ')}" for kind, _, name in parts
            )
    return ", ".join(map(str, value)) if isinstance(value, list) else shown(str(value))


def _what_stays(item: Item, removal: Removal) -> str:
    if item.entry.sha256 in removal.shared:
        return "; another name has the same file, which stays"
    if item.where == "hub cache" and item.path is not None:
        return f"; its file stays in the hub's cache, at {shown(item.path.resolve())}"
    if item.where == "link" and item.path is not None:
        return f"; the file {shown(item.path.resolve())} is yours and stays"
    return ""
