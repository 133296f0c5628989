"""`localspec recommend`: which models suit this machine, by its memory and the predicted speed."""

import json
from collections.abc import Mapping
from typing import Any

import click

from localspec.display import notice
from localspec.errors import ModelUnavailable
from localspec.launch.memories import memories
from localspec.launch.rows import ModelRow, model_rows
from localspec.llama.spare_cores import GIVES_WAY, taken_by_others
from localspec.models.entries import Purpose
from localspec.models.recommend import Memory, Recommendation, Suits, recommend, rounded
from localspec.models.registry import load_registry
from localspec.storage.files import size_text


@click.command("recommend")
@click.option("--code", is_flag=True, help="Recommend models for code instead of chat.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def recommend_(code: bool, json_: bool) -> None:
    """Recommend models for this machine, best first; `*` marks those that are on it.

    The best is the largest model, or one nearly as large and much faster, that takes at most half of
    the memory (85 % of a GPU's own) and should write 8 tokens per second or more. Every token reads
    the weights once, so localspec measures how fast it can read them here, once an hour, and
    predicts the speed from that. What other programs use at the moment changes nothing.
    """
    registry = load_registry()
    purpose: Purpose = "code" if code else "chat"
    places = memories(registry)
    found = recommend(registry, places, purpose)
    rows = {row.name: row for row in model_rows(registry, places)}
    if json_:
        click.echo(json.dumps(_document(places, found, rows), indent=2))
        return
    for place in places:
        free = "" if place.free_bytes is None else f", {size_text(place.free_bytes)} free now"
        speed = "" if place.bytes_per_s is None else f", read at {place.bytes_per_s / 1e9:.0f} GB/s"
        click.echo(f"{place.name}: {size_text(place.total_bytes)}{free}{speed}", err=True)
    others = taken_by_others()
    if others is not None and others[0] >= GIVES_WAY:
        used = f"other programs are using {others[0]:.1f} of {others[1]} cores"
        notice(f"{used}; the predicted speeds are for a quiet machine")
    if not found:
        raise ModelUnavailable(
            f"no model for {purpose} fits this machine's memory: try {registry.default_pair}, "
            "a tiny demo model"
        )
    width = max(len(each.pair) for each in found)
    size = max(len(rows[each.pair].sizes) for each in found)
    for proposal in found:
        row = rows[proposal.pair]
        name = f"{'*' if row.here else ' '} {row.name:<{width}}  {row.sizes:<{size}}"
        click.echo(f"{name}  {_reason(proposal)}: {row.about}")
    first = rows[found[0].pair]
    if first.here:
        click.echo(f"start the first with `localspec chat {first.name}`", err=True)
    else:
        click.echo(f"download the first with `localspec pull {first.name}`", err=True)


def _reason(proposal: Recommendation) -> str:
    speed, memory = proposal.tokens_per_s, proposal.memory
    foreseen = "speed unknown" if speed is None else f"≈ {rounded(speed)} tokens/s"
    note = {
        Suits.WELL: "",
        Suits.SLOW: ", slow here",
        Suits.TIGHT: f", more than {memory.most:.0%} of it",
    }[proposal.suits]
    short = ", more than is free now" if proposal.is_short else ""
    return f"{foreseen}, {size_text(proposal.needed_bytes)} {memory.name}{note}{short}"


def _document(
    places: list[Memory], found: tuple[Recommendation, ...], rows: Mapping[str, ModelRow]
) -> dict[str, Any]:
    return {
        "memories": [
            {
                "name": each.name,
                "total_bytes": each.total_bytes,
                "free_bytes": each.free_bytes,
                "bytes_per_s": each.bytes_per_s,
            }
            for each in places
        ],
        "proposals": [
            {
                "pair": each.pair,
                "memory": each.memory.name,
                "needed_bytes": each.needed_bytes,
                "read_bytes": each.target.read_bytes,
                "tokens_per_s": each.tokens_per_s,
                "suits": each.suits.name.lower(),
                "is_short": each.is_short,
                "here": rows[each.pair].here,
            }
            for each in found
        ],
    }
