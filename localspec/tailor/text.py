"""What tailoring found, as people read it and as JSON."""

from collections.abc import Iterator, Sequence

from localspec.decoding.costs import PassCosts
from localspec.display import table
from localspec.storage.files import size_text
from localspec.tailor.tailor import Tried
from localspec.tailor.worth import ACCEPTANCES, STEPS, most_step, speed_up


def chances_text(name: str, costs: PassCosts) -> Iterator[str]:
    """Yield what drafting could earn with a target, before anything is made."""
    yield f"What a draft model could make of {name} here, in times its plain speed,"
    yield "by the share of its tokens that are accepted and by what a token of it costs in steps of the target:"
    steps = [f"{each:g}" if each else "free" for each in STEPS]
    rows = [["ACCEPTED", *steps, "WINS BELOW"]]
    for accepted in ACCEPTANCES:
        most = most_step(costs, accepted)
        speeds = [f"{speed_up(costs, accepted, step):.2f}" for step in STEPS]
        rows.append([f"{accepted:.0%}", *speeds, f"{most:.2f}" if most > 0 else "-"])
    yield from table(rows)


def chances_json(costs: PassCosts) -> dict[str, object]:
    """Return the same as JSON can hold it."""
    return {
        "steps": {str(width): costs.of(width) / costs.of(1) for width in costs.widths},
        "speed_up": [
            {"accepted": accepted, "step": step, "speed_up": speed_up(costs, accepted, step)}
            for accepted in ACCEPTANCES
            for step in STEPS
        ],
    }


def tried_text(tried: Sequence[Tried]) -> Iterator[str]:
    """Yield a table of candidates."""
    rows = [["DRAFT MODEL", "SIZE", "AGREES", "STEP", "SPEED", "PAYS ON"]]
    rows += [
        [
            each.candidate.label,
            size_text(each.size_bytes),
            f"{each.agrees:.1%}",
            f"{each.step:.2f}",
            f"{each.earned.speed:.2f}",
            ", ".join(each.pays_on) or "-",
        ]
        for each in tried
    ]
    yield from table(rows)


def tried_json(each: Tried) -> dict[str, object]:
    """Return a candidate as JSON can hold it."""
    of_kind = {kind: sum(map(sum, hits)) / sum(map(len, hits)) for kind, hits in each.hits.items()}
    return {
        "source": each.candidate.name,
        "recipe": each.candidate.recipe,
        "size_bytes": each.size_bytes,
        "agrees": each.agrees,
        "agrees_by_workload": of_kind,
        "step": each.step,
        "speed_up": each.earned.speed,
        "speed_up_by_workload": dict(each.earned.by_kind),
    }


def found_text(best: Tried, before: Sequence[Tried]) -> str:
    """Return what a candidate gained, on one line that is kept with it."""
    there = [each for each in before if not each.candidate.recipe]
    beside = f", {there[0].agrees:.1%} and {there[0].step:.2f} before" if there else ""
    return (
        f"it foretold {best.agrees:.1%} of the target's tokens at {best.step:.2f} steps a token{beside};"
        f" {best.earned.speed:.2f} times plain speed on {', '.join(best.pays_on)} and the like"
    )
