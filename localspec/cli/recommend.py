"""`localspec recommend`: which models suit this machine, by its memory and the speed that is foreseen."""

import json
from typing import Any

import click

from localspec.display import notice
from localspec.errors import ModelUnavailable
from localspec.launch.memories import memories
from localspec.llama.spare_cores import GIVES_WAY, taken_by_others
from localspec.models.entries import Purpose
from localspec.models.recommend import Memory, Recommendation, Suits, recommend, rounded
from localspec.models.registry import Registry, load_registry
from localspec.storage.files import size_text


@click.command("recommend")
@click.option("--code", is_flag=True, help="Recommend models for code instead of chat.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def recommend_(code: bool, json_: bool) -> None:
    """Recommend models for this machine, best first.

    The best is the largest model, or one nearly as large and much faster, that takes at most 60 % of
    free memory (85 % of a GPU's own) and should write 8 tokens per second or more. Every token reads
    the weights once, so localspec measures how fast it can read them here, and predicts the speed from that.
    """
    registry = load_registry()
    purpose: Purpose = "code" if code else "chat"
    places = memories(registry)
    found = recommend(registry, places, purpose)
    if json_:
        click.echo(json.dumps(_document(places, found), indent=2))
        return
    for place in places:
        speed = "" if place.bytes_per_s is None else f", read at {place.bytes_per_s / 1e9:.0f} GB/s"
        click.echo(f"{place.name}: {size_text(place.free_bytes)} free{speed}", err=True)
    others = taken_by_others()
    if others is not None and others[0] >= GIVES_WAY:
        told = f"other programs are using {others[0]:.1f} of {others[1]} cores"
        notice(f"{told}; the measured speed may be too low")
    if not found:
        raise ModelUnavailable(
            f"no model for {purpose} fits free memory: close other programs, or try "
            f"{registry.default_pair}, a tiny demo model"
        )
    width = max(len(each.pair) for each in found)
    for proposal in found:
        click.echo(f"{proposal.pair:<{width}}  {_reason(proposal, registry)}")
    click.echo(f"download the first with `localspec pull {found[0].pair}`", err=True)


def _reason(proposal: Recommendation, registry: Registry) -> str:
    speed, memory = proposal.tokens_per_s, proposal.memory
    foreseen = "speed unknown" if speed is None else f"≈ {rounded(speed)} tokens/s"
    note = {
        Suits.WELL: "",
        Suits.SLOW: ", which is slow",
        Suits.TIGHT: f", more than {memory.most:.0%} of free memory",
    }[proposal.suits]
    takes = f"{size_text(proposal.needed_bytes)} of {memory.name}{note}"
    return f"{foreseen}, {takes}: {registry.pairs[proposal.pair].good_for}"


def _document(places: list[Memory], found: tuple[Recommendation, ...]) -> dict[str, Any]:
    return {
        "memories": [
            {"name": each.name, "free_bytes": each.free_bytes, "bytes_per_s": each.bytes_per_s}
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
            }
            for each in found
        ],
    }
