"""`localspec search`: which models there are to fetch, or here already."""

import json
import shutil
import sys

import click

from localspec.cli.pair_facts import calls_tools, pair_facts, pair_size
from localspec.display import cut
from localspec.errors import ModelUnavailable
from localspec.models.entries import ModelEntry, PairEntry
from localspec.models.registry import Registry, load_registry
from localspec.models.repository import local_file
from localspec.storage.files import size_text


@click.command()
@click.argument("words", nargs=-1)
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def search(words: tuple[str, ...], json_: bool) -> None:
    """List the models that match all WORDS, or all models, smallest first.

    Searches names and what a model is good for. `*` marks models on this machine, `tools` those
    that can call tools.
    """
    registry = load_registry()
    found = matching(" ".join(words).lower(), registry)
    if not found:
        registry.require(" ".join(words))
        raise ModelUnavailable(f"nothing matches {' '.join(words)[:80]!r}: try fewer words")
    if json_:
        click.echo(json.dumps([pair_facts(each, registry) for each in found], indent=2))
        return
    name = max(len(each.name) for each in found)
    width = shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else None
    for each in found:
        size = pair_size(each, registry)
        shown = "?" if size is None else size_text(size)
        here = "*" if _is_here(each, registry) else " "
        tools = "tools" if calls_tools(each, registry) else ""
        line = f"{here} {each.name:<{name}}  {shown:>8}  {tools:5}  {each.good_for}"
        click.echo((line if width is None else cut(line, width)).rstrip())


def matching(text: str, registry: Registry) -> list[PairEntry]:
    """Return the pairs that fit, and as pairs of their own the models that no pair has as its target; smallest first."""
    targets = {pair.target for pair in registry.pairs.values()}
    drafts = {pair.draft_model: pair.name for pair in registry.pairs.values() if pair.draft_model}
    alone = [
        PairEntry(name, name, "lookup", None, _good_for(entry, drafts.get(name)))
        for name, entry in registry.models.items()
        if name not in targets and name not in registry.pairs
    ]
    family = registry.like(text) if text else []
    every = [*registry.pairs.values(), *alone]
    found = [
        each
        for each in every
        if all(word in f"{each.name} {each.good_for}".lower() for word in text.split())
    ]
    found = found or [each for each in every if each.name in family]
    return sorted(found, key=lambda each: (pair_size(each, registry) or 0, each.name))


def _good_for(entry: ModelEntry, target: str | None) -> str:
    """Return what a model that is no pair's target is good for."""
    if entry.embedding is not None:
        return "embedding model: finds passages by what they mean, `index add --vectors`"
    return f"drafts for {target}" if target else ""


def _is_here(pair: PairEntry, registry: Registry) -> bool:
    entry = registry.find(pair.target)
    return entry is not None and local_file(entry) is not None
