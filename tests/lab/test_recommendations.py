"""What the page of recommendations says is what the function that ships answers."""

import re
from pathlib import Path

from lab import recommendations
from localspec.models.entries import Purpose
from localspec.models.registry import load_registry
from localspec.plan.recommend import recommend

ROOT = Path(__file__).parents[2]


def test_the_recommendations_in_the_measurements_are_those_of_today() -> None:
    document = (ROOT / "docs/measurements/recommendations.md").read_text()
    today = "\n".join(recommendations.table(load_registry()))
    assert today in document, "print them anew with `python -m lab.recommendations`"
    heads = "\n".join(recommendations.heads_table(load_registry()))
    assert heads in (ROOT / "docs/models.md").read_text(), "the same command prints these, too"


def test_the_models_in_the_readme_are_recommended_for_a_machine_of_that_memory() -> None:
    registry, text = load_registry(), (ROOT / "README.md").read_text()
    section = text.partition("## Which model")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines()]
    named = [row for row in rows if row and row[0][:1].isdigit()]
    assert len(named) == 6
    for memory, *cells in named:
        size, _, on_gpu = memory.partition(" on a ")
        wanted = f"{on_gpu} with {size}" if on_gpu else size
        machines = [each for each in recommendations.MACHINES if f" {wanted}" in each.text]
        assert machines
        purposes: tuple[Purpose, ...] = ("chat", "code")
        for cell, purpose in zip(cells, purposes, strict=True):
            found = (recommend(registry, each.memories, purpose) for each in machines)
            proposed = {each.pair for pairs in found for each in pairs}
            for model in re.findall("`(.+?)`", cell):
                assert model in proposed, (memory, purpose)
                has_heads = registry.drafter_of(registry.pair(model)) is not None
                assert has_heads is (model != "qwen3.5-2b"), "as the line below the table has it"
