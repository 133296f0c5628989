"""`localspec search`, `list`, `show`, `check`, `rm` and `import`: the known models, and those on this machine."""

import re
import shlex
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from localspec.chat.call_finder import offers_tools
from localspec.chat.thinking import thinking_tags
from localspec.cli.options import complete_models, json_option, require_model
from localspec.cli.progress import fields, print_json, print_list, print_table
from localspec.config import resolve as config
from localspec.config.own import write_keys
from localspec.display import notice, wrapped
from localspec.entry_points import command_lines
from localspec.errors import (
    LocalspecError,
    ModelUnavailable,
    PairMismatch,
    UsageError,
    did_you_mean,
)
from localspec.models.architectures import how_it_drafts, why_no_layer_inputs
from localspec.models.entries import HEADS, MODEL_NAME, HubName, Medium, ModelEntry
from localspec.models.gguf import read_header, read_model
from localspec.models.inventory import (
    Fact,
    Item,
    Removal,
    facts_of,
    inventory,
    plan_removal,
    remove,
)
from localspec.models.ledger import IMPORTS
from localspec.models.mmproj import ENCODERS, encoded, in_words, mmproj_of, takes, why_no_mmproj
from localspec.models.names import import_file, look_up, resolve
from localspec.models.pairs import Fit, PairReport, Side, check_pair, quoted, suggest
from localspec.models.registry import USER_FILE, Registry, load_registry
from localspec.models.repository import model_header
from localspec.models.store import Store
from localspec.session.model_lines import cells, marks_of, sizes_of, words_of
from localspec.session.model_list import ModelRow, model_rows
from localspec.storage.files import size_text
from localspec.storage.paths import config_dir, data_dir, shown


@click.command()
@click.argument("words", nargs=-1)
@json_option
def search(words: tuple[str, ...], json_: bool) -> None:
    """List the models that match all WORDS, or all models: chat models first, this year's before others.

    Searches names and what models are good for. `*` marks models on this machine, `tools` models
    that can call tools, `thinking` models that reason before they answer, `images` and `audio` models
    that take these beside text, `heads` models with heads that draft for them.
    """
    registry, text = load_registry(), " ".join(words).lower()
    rows = model_rows(registry)
    matches = [each for each in rows if all(word in words_of(each) for word in text.split())]
    if text and not matches:
        family = registry.like(text)
        matches = [each for each in rows if each.name in family]
    if not matches:
        # What one description alone says finds nothing else: "did you mean nothing?", of one that knows nothing.
        counts = Counter(w for row in rows for w in {*re.findall(r"[a-z]{3,}", words_of(row))})
        names = {w for row in rows for w in re.findall(r"[a-z]{3,}", row.name)}
        known = names | {word for word, count in counts.items() if count > 1}
        meant = filter(
            None, (did_you_mean(word, known) for word in text.split() if word not in known)
        )
        if hint := next(meant, ""):
            raise ModelUnavailable(f"nothing matches {' '.join(words)[:80]!r}: {hint}")
        registry.require(" ".join(words))
        raise ModelUnavailable(f"nothing matches {' '.join(words)[:80]!r}: try fewer words")
    table = (cells(row, " · ".join(filter(None, (row.about, marks_of(row))))) for row in matches)
    print_list([_row_facts(row, registry) for row in matches], table, "", json_=json_)


def _takes(media: tuple[Medium, ...]) -> list[str]:
    return in_words(media).split(", ")


def _row_facts(row: ModelRow, registry: Registry) -> dict[str, Any]:
    assert row.pair is not None, "every row of the table has one"  # noqa: S101
    return {
        **fields(row, "name kind"),
        **fields(row.pair, "target draft draft_model"),
        "good_for": row.about or None,
        "caveat": row.pair.caveat or None,
        **fields(row, "size_bytes mmproj_bytes draft_bytes tools thinking"),
        "takes": _takes(row.takes),
        **fields(row, "heads year here draft_here"),
        "default": row.name == registry.default_pair,
    }


@click.command(name="list")
@json_option
def list_(json_: bool) -> None:
    """List the models on this machine: name, size, where the file is, and what it takes beside text, or its purpose.

    Files in the `store` belong to localspec. `hub cache` and `link` are files of other programs or
    your own, which are never deleted. `unfinished` downloads resume with the next pull.
    """
    registry = load_registry()
    items = inventory(registry, Store(data_dir()))
    rows = {row.name: row for row in model_rows(registry)}
    also = _other_names(registry)
    table = []
    for item in items:
        row = rows.get(item.entry.full_name) or rows.get(item.name)
        purpose = row.about if row is not None and row.kind not in {"chat", "code"} else ""
        media = takes(item.entry) if item.mmproj_bytes else ()
        purpose = purpose or (in_words(media) if media else "")
        if names := also.get(item.name):
            purpose = ", ".join(filter(None, [purpose, f"also {' and '.join(names)}"]))
        size = size_text(item.entry.size_bytes)
        if item.where in {"unfinished", "damaged"}:
            size = f"{size_text(item.here_bytes)} of {size}"
        table.append((item.name, f"{size:>17}", item.where, purpose))
    none = "no models yet: `localspec recommend` suggests some, `localspec pull NAME` downloads one"
    print_list(
        [_item_facts(item, also.get(item.name, [])) for item in items], table, none, json_=json_
    )


def _other_names(registry: Registry) -> dict[str, list[str]]:
    """Return the names that `import` gave to models, by the name of the model; a pair's are its target's."""
    names: dict[str, list[str]] = {}
    for alias, meaning in registry.aliases.items():
        pair = registry.pairs.get(meaning)
        if (entry := registry.find(meaning if pair is None else pair.target)) is not None:
            names.setdefault(entry.name, []).append(alias)
    return names


def _item_facts(item: Item, aliases: Sequence[str]) -> dict[str, object]:
    return {
        **fields(item, "name here_bytes mmproj_bytes where imported"),
        "aliases": aliases,
        **fields(item.entry, "size_bytes sha256"),
        "path": None if item.path is None else str(item.path),
        "learnt": None if item.entry.pin is None else item.entry.pin.date,
    }


@click.command()
@click.argument("name", shell_complete=complete_models)
@click.option(
    "--for",
    "program",
    type=click.Choice(["llama-server", "vllm", "sglang", "lmstudio"]),
    metavar="PROGRAM",
    help="Print the command that starts it, with its draft model or heads, in llama-server, vllm, sglang or lmstudio.",
)
@json_option
def show(name: str, program: str | None, json_: bool) -> None:
    """Show details of NAME, a model, a pair's target or a GGUF file.

    `tools` is whether it can call tools, by its chat template; `takes` what it reads, with the
    `mmproj` file where that is more than text. `drafts` are the known models that
    can draft for it, best first; `localspec check` judges any other.
    """
    registry = load_registry()
    if program is not None:
        _show_launch(name, program, registry, json_=json_)
        return
    if name in registry.pairs and registry.find(name) is None:
        name = registry.pairs[name].target
    facts: dict[str, Fact] = {**facts_of(name, registry, Store(data_dir()))}
    if isinstance(facts.get("path"), str):
        header = read_model(Path(str(facts["path"])))
        facts["tools"] = offers_tools(header.tool_template)
        facts["thinking"] = bool(thinking_tags(header.chat_template or "")) or None
    row = _row(registry.name(name), str(facts["name"]), registry)
    if row is not None and row.pair is not None:
        facts |= {"good_for": row.about or None, "thinking": row.thinking or facts.get("thinking")}
        facts |= {"draft_model": row.pair.draft_model, "draft_bytes": row.draft_bytes}
    target = registry.find(str(facts["name"]))
    if target is not None:
        heads = [_heads(each, target) for each in registry.with_heads_for(target)]
        if repos := " or ".join(target.heads_to_convert):
            heads.append(f"{repos}, for llama.cpp's convert_hf_to_gguf.py")
        facts["heads"] = heads or None
        newer = registry.newer(target)
        facts["newer"] = None if newer is None else f"{newer.name}, {size_text(newer.size_bytes)}"
    facts["training"] = _training(facts, registry)
    # The hub is not asked for it, and a file without tokenizer is no target.
    is_known = target is not None and target.is_known
    judged = facts["n_vocab"] is not None if "n_vocab" in facts else is_known
    drafts = suggest(name, registry) if judged else []
    if json_:
        facts_of_drafts = [{**asdict(each), "ratio": round(each.ratio, 2)} for each in drafts]
        print_json({**facts, "drafts": facts_of_drafts})
        return
    size = facts.pop("size_bytes", None)
    facts.pop("draft_bytes", None)
    known = sizes_of(row) if row is not None else size_text(size) if isinstance(size, int) else None
    known_facts = {"name": facts.pop("name"), "size": known, **facts}
    lines = [(key, _text(key, each)) for key, each in known_facts.items() if each is not None]
    for at, each in enumerate(drafts):
        lines.append(("" if at else "drafts", f"{each.draft_model}: {'; '.join(each.reasons)}"))
    print_table(
        ((_LABELS.get(key, key.replace("_", " ")), text) for key, text in lines), whole=True
    )


def _show_launch(name: str, program: str, registry: Registry, *, json_: bool) -> None:
    launch = command_lines("server", name, program, registry)
    if json_:
        print_json(asdict(launch))
        return
    click.echo("\n".join(map(shlex.join, launch.commands)))
    notice(*launch.notes)


def _heads(entry: ModelEntry, target: ModelEntry) -> str:
    """Return which heads a model has for a target, where, and who says so."""
    assert entry.heads is not None, "only these are listed"  # noqa: S101
    heads, size = entry.heads, size_text(entry.size_bytes) if entry.size_bytes else "size unknown"
    repo = f"{entry.hub.repo}, " if entry.hub else ""
    where = "in its file" if entry is target else f"{entry.name}, {repo}{size}"
    return f"{HEADS[heads.kind]} ({where}; {heads.source}, {heads.date})"


def _training(facts: Mapping[str, Fact], registry: Registry) -> str | None:
    """Return advice on training heads for a model; None where that is impossible, or where its file is not here to tell."""
    target, path = registry.find(str(facts["name"])), facts.get("path")
    if registry.published_heads(target):
        return "published heads are the better choice: they learnt from far more text"
    of_target = (each.name for each in registry.pairs.values() if each.target == facts["name"])
    pair = next(of_target, None)
    if pair is None or not isinstance(path, str) or why_no_layer_inputs(read_model(Path(path))):
        return None
    return f"`localspec-student make {pair}` trains heads here; no published ones are known"


def _row(name: str, model: str, registry: Registry) -> ModelRow | None:
    """Return the row of a name, or else the first one of that model; None for a file without a name."""
    rows = model_rows(registry)
    of_model = [row for row in rows if row.pair is not None and row.pair.target == model]
    return next(iter([*(row for row in rows if row.name == name), *of_model]), None)


_LABELS = {"n_vocab": "vocabulary"}
_TOKENIZERS = {"gpt2": "BPE", "llama": "SentencePiece", "bert": "WordPiece", "t5": "Unigram"}
_SOURCES = {"hub": "Hugging Face", "wheels": "Python packages"}


def _text(key: str, value: object) -> str:
    match key, value:
        case "n_vocab" | "weights", int(count):
            few = f"{count:,} tokens" if key == "n_vocab" else f"{count / 1e6:.0f} million"
            return few if count < 1e9 else f"{count / 1e9:.2f} billion"
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
    between = "; " if key == "heads" else ", "
    return between.join(map(str, value)) if isinstance(value, list) else shown(str(value))


@click.command()
@click.argument("target", shell_complete=complete_models)
@click.argument(
    "draft_model", metavar="[DRAFT_MODEL|MMPROJ]", required=False, shell_complete=complete_models
)
@json_option
def check(target: str, draft_model: str | None, json_: bool) -> int:
    """Check whether DRAFT_MODEL can draft for TARGET, or whether TARGET fits MMPROJ, a file that lets it see or hear.

    Models are names, GGUF files, or user/repo:QUANT on the hub, of which only the header is
    downloaded. Models with different vocabularies can still work, with less gain. Without a second
    argument, checks the mmproj file that TARGET has. The exit code is 4 if they do not fit.
    """
    registry = load_registry()
    mmproj = _mmproj(target, draft_model, registry)
    if mmproj is not None:
        return _check_mmproj(target, mmproj, registry, json_=json_)
    assert draft_model is not None, "there is an mmproj file without one"  # noqa: S101
    report = check_pair(target, draft_model, registry)
    if json_:
        print_json(_check_facts(report))
    else:
        across = report.can_draft and report.shared_percent is not None
        can = "can" if report.can_draft else "cannot"
        verdict = "usable across vocabularies" if across else report.fit.verdict
        click.echo(f"{verdict}: {report.draft_model.name} {can} draft for {report.target.name}")
        rows = _check_rows(report, across=across)
        print_table(((f"  {key}", text) for key, text in rows), whole=True)
    return 0 if report.can_draft else PairMismatch.exit_code


def _mmproj(target: str, file: str | None, registry: Registry) -> Path | None:
    """Return the mmproj file to check: the target's without a file; None where the file is something else."""
    if file is None:
        model = resolve(target, registry)
        path = None if isinstance(model, HubName) else mmproj_of(model)
        if path is None:
            raise UsageError(f"{target} has no mmproj file here: name one, or a draft model")
        return path
    path = Path(file).expanduser()
    return path if path.is_file() and read_header(path).architecture == ENCODERS else None


def _check_mmproj(target: str, path: Path, registry: Registry, *, json_: bool) -> int:
    header, name = read_header(path), shown(path)
    model = replace(model_header(look_up(target, registry)), name=target)
    why, media = why_no_mmproj(model, header), encoded(header)
    if json_:
        facts = {
            "fits": why is None,
            "reason": why,
            "takes": _takes(media) if why is None else None,
        }
        projector = header.text("clip.projector_type")
        print_json({**facts, "target": target, "mmproj": str(path), "projector": projector})
    elif why is None:
        click.echo(f"fits: with {name}, {target} takes {in_words(media)}")
    else:
        click.echo(f"does not fit: {name} {why}")
    return 0 if why is None else PairMismatch.exit_code


def _check_rows(report: PairReport, *, across: bool) -> Iterator[tuple[str, str]]:
    fit, target, draft_model = report.fit, report.target, report.draft_model
    if report.shared_percent is not None:
        percent = f"{report.shared_percent:.1f} % of the draft model's tokens are also the target's"
        yield "shared", percent + (": expect fewer accepted tokens" if across else "")
    if across:
        yield "use", "name it with --draft-model: it is never chosen automatically"
    different = fit.first_difference
    if different is not None:
        pieces = f"{quoted(different.target_piece)} and {quoted(different.draft_piece)}"
        yield "first difference", f"token {different.token} is {pieces}"
    elif fit.reason:
        yield "reason", fit.reason
    sizes = f"{target.header.tokenizer.n_vocab} and {draft_model.header.tokenizer.n_vocab}"
    by_number = "" if report.shared_percent is None else ", counting equal number and text"
    yield "tokens", f"{sizes}, {fit.overlap_percent:.4g} % overlap{by_number}"
    for note in () if different is not None else fit.notes:
        yield "note", note
    for side in (target, draft_model):
        if special := how_it_drafts(side.header):
            yield "drafting", f"{side.name}: {special}"
    yield "chat templates", report.templates
    yield "fingerprints", f"{target.fingerprint[:16]} and {draft_model.fingerprint[:16]}"
    if downloaded := target.fetched_bytes + draft_model.fetched_bytes:
        yield "downloaded", f"{size_text(downloaded)} of headers"


def _check_facts(report: PairReport) -> dict[str, Any]:
    fit, different = report.fit, report.fit.first_difference
    return {
        "fits": fit.verdict is not Fit.INCOMPATIBLE,
        "usable": report.can_draft,
        **fields(fit, "verdict overlap_percent shared_vocab notes"),
        "shared_percent": report.shared_percent,
        "reason": fit.reason or None,
        "first_difference": different and asdict(different),
        "chat_templates": report.templates,
        "target": _side_facts(report.target),
        "draft_model": _side_facts(report.draft_model),
    }


def _side_facts(side: Side) -> dict[str, Any]:
    header, tokenizer = side.header, side.header.tokenizer
    return {
        **fields(side, "name size_bytes fetched_bytes fingerprint"),
        "architecture": header.architecture,
        "context": header.context_length,
        "tokenizer": tokenizer.model,
        "pre_tokenizer": tokenizer.pre,
        "n_vocab": tokenizer.n_vocab,
        "has_chat_template": header.chat_template is not None,
    }


@click.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=complete_models)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def rm(names: tuple[str, ...], yes: bool) -> None:
    """Remove models from this machine. NAME is a model, or a name that `import` gave one.

    Never deletes files that another model uses, that are in the hub's cache, or that you imported
    without --copy: of these, only the name is removed.
    """
    registry, store = load_registry(), Store(data_dir())
    models = [each for each in names if not _is_own_alias(each)]
    removal = plan_removal(models, registry, store)
    absent = [each for each in models if plan_removal([each], registry, store).is_empty]
    for each in filter(_is_own_alias, names):
        write_keys(config_dir() / USER_FILE, {each: None}, "aliases")
        click.echo(f"removed the name {each}; {registry.aliases[each]} stays")
    if removal.items and not yes:
        what, used = ", ".join(item.name for item in removal.items), _used(names, removal)
        if sys.stdin.isatty():
            why = f"; {used}" if used else ""
            size = size_text(removal.frees_bytes)
            question = wrapped(f"remove {what} ({size}){why}?", sys.stderr)
            click.confirm(question, abort=True, err=True)
        elif used:
            raise UsageError(f"{used}: to remove {what} all the same, give --yes")
    lines = [f"removed {item.name}{_what_stays(item, removal)}" for item in removal.items]
    freed = remove(removal, store)
    if removal.items:
        if freed:  # a name of a file that stays frees nothing
            size = size_text(freed)
            lines.append(f"freed {freed} bytes{'' if size == '0 MB' else f' ({size})'}")
        click.echo("\n".join(lines))
    if removal.stays:
        reasons = "; ".join(f"{item.name} stays, because {why}" for item, why in removal.stays)
        raise LocalspecError(f"{reasons}: to remove both, name both")
    if absent:
        are = "is" if len(absent) == 1 else "are"
        raise ModelUnavailable(
            f"{' and '.join(absent)} {are} not on this machine: `localspec list` shows what is"
        )


def _used(names: Sequence[str], removal: Removal) -> str:
    """Return which model that goes is the default, or loaded in a server or another program; empty if none is."""
    # Other verbs need none of these.
    from localspec.engine.running import servers  # noqa: PLC0415
    from localspec.storage.locks import is_held  # noqa: PLC0415

    going = {*names, *(item.name for item in removal.items)}
    settings = config.resolve({})
    used = [
        f"{each} is your default model"
        for each in dict.fromkeys((settings["pair"].value, settings["target"].value))
        if each in going
    ]
    by_servers = [
        f"server {each.pid} uses {each.model}"
        for each in servers()
        if going & {each.model, *each.models}
    ]
    if removal.lacking:
        used.append(f"{' and '.join(removal.lacking)} will draft without a model")
    loaded = [each.name for each in removal.items if each.path is not None and is_held(each.path)]
    if loaded and not by_servers:
        used.append(f"a program has {' and '.join(loaded)} loaded")
    return " and ".join([*used, *by_servers])


def _what_stays(item: Item, removal: Removal) -> str:
    if item.entry.sha256 in removal.shared:
        return "; the file stays: another name uses it"
    if item.path is None or item.where not in {"hub cache", "link"}:
        return ""
    whose = "is yours" if item.where == "link" else "is in the hub's cache"
    return f"; the file {shown(item.path.resolve())} {whose} and stays"


@click.command(name="import")
@click.argument("model", metavar="[PATH|MODEL]", required=False, shell_complete=complete_models)
@click.option("--name", help="The new name; required for a MODEL. Default: the file's name.")
@click.option("--copy", is_flag=True, help="Copy the file instead of pointing to it.")
def import_(model: str | None, name: str | None, copy: bool) -> None:
    """Name a GGUF file, or the one in a folder, or give a model another name, for use in every command.

    \b
        localspec import ~/models/my-7b.gguf --name mine
        localspec import qwen3-4b --name fast

    A file is checked first; an mmproj file beside it, which lets it see or hear, comes along. Without arguments, lists the names that were given to models and files; `localspec rm fast`
    removes one that you gave.
    """  # noqa: D301 - click keeps lines behind a \b
    registry = load_registry()
    if model is None:
        for each, model_name in registry.aliases.items():
            click.echo(f"{each} = {model_name}")
        store = Store(data_dir())
        for each, entry in IMPORTS.load(store.root).items():
            path = store.path_of(entry)
            click.echo(
                f"{each} = {'a file that is gone' if path is None else shown(path.resolve())}"
            )
    elif Path(model).expanduser().is_file() or not registry.knows(model):
        path, store = Path(model).expanduser(), Store(data_dir())
        click.echo(import_file(path, name, registry, store, copy=copy).name)
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
