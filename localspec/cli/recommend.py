"""`localspec recommend`: which models suit this machine, by its memory and the speed that is foreseen."""

import json
from typing import Any

import click

from localspec.errors import ModelUnavailable
from localspec.launch.memories import memories
from localspec.llama.spare_cores import GIVES_WAY, taken_by_others
from localspec.models.entries import Purpose
from localspec.models.recommend import Memory, Proposal, Suits, recommend, rounded
from localspec.models.registry import Registry, load_registry
from localspec.storage.files import size_text


@click.command("recommend")
@click.option("--code", is_flag=True, help="For code, not for chat.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def recommend_(code: bool, json_: bool) -> None:
    """Propose models that suit this machine, the best first.

    That is the largest that takes at most 60 % of the free memory (85 % of a GPU's own) and writes
    8 tokens a second or more, as far as the memory's speed tells: every token reads the weights
    once. The speed comes from passes that were measured here, or from reading memory for a moment.
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
        told = f"other programs take {others[0]:.1f} of {others[1]} cores"
        click.echo(f"localspec: {told}: the speed may be measured too low", err=True)
    if not found:
        raise ModelUnavailable(
            f"no model for {purpose} fits the free memory: end other programs, or take "
            f"{registry.default_pair}, which is a toy"
        )
    width = max(len(each.pair) for each in found)
    for proposal in found:
        click.echo(f"{proposal.pair:<{width}}  {_reason(proposal, registry)}")
    click.echo(f"`localspec pull {found[0].pair}` fetches the first", err=True)


def _reason(proposal: Proposal, registry: Registry) -> str:
    speed, memory = proposal.tokens_per_s, proposal.memory
    foreseen = "speed unknown" if speed is None else f"≈ {rounded(speed)} tokens/s"
    note = {
        Suits.WELL: "",
        Suits.SLOW: ", which is slow",
        Suits.TIGHT: f", more than {memory.most:.0%} of what is free",
    }[proposal.suits]
    takes = f"{size_text(proposal.needed_bytes)} of {memory.name}{note}"
    return f"{foreseen}, {takes}: {registry.pairs[proposal.pair].good_for}"


def _document(places: list[Memory], found: tuple[Proposal, ...]) -> dict[str, Any]:
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
