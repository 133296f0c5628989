"""What the page of recommendations says is what the function that ships answers."""

from pathlib import Path

from lab import recommendations
from localspec.models.registry import load_registry

ROOT = Path(__file__).parents[2]


def test_the_recommendations_in_the_measurements_are_those_of_today() -> None:
    document = (ROOT / "docs/measurements/recommendations.md").read_text()
    today = "\n".join(recommendations.table(load_registry()))
    assert today in document, "print them anew with `python -m lab.recommendations`"
    heads = "\n".join(recommendations.heads_table(load_registry()))
    assert heads in (ROOT / "docs/models.md").read_text(), "the same command prints these, too"
