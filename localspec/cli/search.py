"""`localspec search`: which models there are to fetch, or here already."""

import json
import shutil
import sys

import click

from localspec.cli.pair_facts import row_facts
from localspec.display import cut
from localspec.errors import ModelUnavailable
from localspec.launch.rows import ModelRow, model_rows
from localspec.models.registry import Registry, load_registry


@click.command()
@click.argument("words", nargs=-1)
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def search(words: tuple[str, ...], json_: bool) -> None:
    """List the models that match all WORDS, or all models, smallest first: chat models, then draft and embedding models.

    Searches names and what a model is good for. `*` marks models on this machine, `tools` those
    that can call tools, `thinking` those that think before they answer.
    """
    registry = load_registry()
    found = matching(" ".join(words).lower(), registry)
    if not found:
        registry.require(" ".join(words))
        raise ModelUnavailable(f"nothing matches {' '.join(words)[:80]!r}: try fewer words")
    if json_:
        click.echo(json.dumps([row_facts(each, registry) for each in found], indent=2))
        return
    name, size = (max(len(getattr(each, of)) for each in found) for of in ("name", "sizes"))
    width = shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else None
    for each in found:
        about = " · ".join(filter(None, (each.about, each.marks)))
        line = f"{'*' if each.here else ' '} {each.name:<{name}}  {each.sizes:<{size}}  {about}"
        click.echo((line if width is None else cut(line, width)).rstrip())


def matching(text: str, registry: Registry) -> list[ModelRow]:
    """Return the models whose names or words fit, or else those of the family that a text names."""
    rows = model_rows(registry)
    found = [each for each in rows if all(word in each.words for word in text.split())]
    family = registry.like(text) if text and not found else []
    return found or [each for each in rows if each.name in family]
