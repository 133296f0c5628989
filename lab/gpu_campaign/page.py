"""The page of a campaign: its results in Markdown, a section for each kind of stage. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lab.gpu_campaign.results import DONE, FAILED, Outcome
from localspec.storage.files import size_text

Row = Sequence[object]
Found = Sequence[Mapping[str, Any]]


def page(outcomes: Mapping[str, Outcome], order: Sequence[str] = ()) -> str:
    """Return the page.

    Args:
        outcomes: by the names of stages.
        order: of the names; others come last.
    """
    places = {name: at for at, name in enumerate(order)}
    names = sorted(outcomes, key=lambda name: places.get(name, len(places)))
    kinds: dict[str, list[Outcome]] = {}
    for name in names:
        kinds.setdefault(outcomes[name].kind, []).append(outcomes[name])
    lines = ["# GPU campaign", ""]
    for kind, its in kinds.items():
        lines += [f"## {kind.capitalize()}", ""]
        for outcome in its:
            lines += [*_section(kind, outcome), ""]
    spent = sum(each.seconds for each in outcomes.values())
    failed = [name for name in names if outcomes[name].status == FAILED]
    lines.append(f"{len(outcomes)} stages, {spent / 60:.1f} minutes, {len(failed)} failed.")
    return "\n".join(lines) + "\n"


def _section(kind: str, outcome: Outcome) -> Iterator[str]:
    said = "" if outcome.status == DONE else f" ({outcome.status}: {_line(outcome.complaint)})"
    yield f"**{outcome.subject}**, {outcome.seconds:.0f} s{said}"
    if outcome.found:
        yield ""
        yield from _SECTIONS.get(kind, _other)(outcome.found)


def _devices(found: Found) -> Iterator[str]:
    one = found[0]
    for key in (
        "machine",
        "system",
        "driver",
        "features",
        "llama_cpp_python",
        "libraries",
        "localspec",
    ):
        if one.get(key):
            yield f"- {key.replace('_', ' ')}: {_line(one[key])}"
    yield ""
    yield from _table(
        ["device", "hardware", "free", "memory"],
        [
            [
                each["name"],
                each["description"],
                *map(size_text, (each["free_bytes"], each["total_bytes"])),
            ]
            for each in one["devices"]
        ],
    )


def _costs(found: Found) -> Iterator[str]:
    by_depth = found[0]["by_depth"]
    widths = list(dict.fromkeys(width for its in by_depth.values() for width in its))
    yield from _table(
        ["ms at depth", *widths],
        [
            [depth, *(_number(by_width.get(width), 1) for width in widths)]
            for depth, by_width in by_depth.items()
        ],
    )
    idle = ", ".join(f"{each:.1f}" for each in found[0].get("after_idling", ()))
    if idle:
        yield f"\nOne token after three seconds of rest: {idle} ms."


def _speed(found: Found) -> Iterator[str]:
    rows = [
        [
            each["mode"], each["workload"], each["temperature"], _number(each["tokens_per_s"], 1),
            _number(each["first_token_s"], 3), _number(each["acceptance_rate"], 2),
            f"{each['same_text']} of {each['runs']}" if each["same_text"] is not None else "",
            _ratio(found[0], each),
        ]
        for each in found[0]["figures"]
    ]  # fmt: skip
    heads = [
        "mode",
        "text",
        "temperature",
        "tokens/s",
        "first token s",
        "accepted",
        "same text",
        "of off",
    ]
    yield from _table(heads, rows)


def _ratio(document: Mapping[str, Any], cell: Mapping[str, Any]) -> str:
    """Return the speed of a cell relative to `off`, with its interval."""
    keys = ("mode", "workload", "temperature")
    for each in document["ratios"]:
        if all(each[key] == cell[key] for key in keys):
            low, high = _number(each["low"], 2), _number(each["high"], 2)
            return _number(each["ratio"], 2) + (f" ({low} to {high})" if low else "")
    return ""


def _memory(found: Found) -> Iterator[str]:
    """Yield memory by place; rows of output are left out, as llama.cpp allocates them with the first pass."""
    foreseen, taken = found[0]["foreseen"], found[0]["taken"]
    rows = []
    for place in {**foreseen, **taken}:
        its, real = foreseen.get(place, {}), taken.get(place, {})
        sizes = [
            (its.get(kind, 0), real.get(kind, 0))
            for kind in ("weights_bytes", "kv_bytes", "compute_bytes")
        ]
        sizes.append((sum(one for one, _ in sizes), sum(other for _, other in sizes)))
        rows.append([place, *(_both(*each) for each in sizes)])
    heads = ["foreseen / taken, MB", "weights", "cache", "compute", "all"]
    yield from _table(heads, rows)


def _both(foreseen: float, taken: float) -> str:
    off = f" ({foreseen / taken - 1:+.1%})" if taken else ""
    return f"{foreseen / 1e6:.1f} / {taken / 1e6:.1f}{off}"


def _first(found: Found) -> Iterator[str]:
    by_prompt = found[0]["seconds_by_prompt"]
    rows = [[length, f"{1000 * seconds:.0f}"] for length, seconds in by_prompt.items()]
    yield from _table(["tokens of the prompt", "first token, ms"], rows)


def _cancelling(found: Found) -> Iterator[str]:
    rows = [
        [what, each["median_ms"], each["most_ms"], each["n"]] for what, each in found[0].items()
    ]
    yield from _table(["cancelled in", "median ms", "most ms", "times"], rows)


def _widths(found: Found) -> Iterator[str]:
    for kernels, its in found[0].items():
        gaps = ", ".join(f"{width}: {gap:.2g}" for width, gap in its["others_differ_by"].items())
        depths = ", ".join(map(str, its.get("depths", ())))
        yield f"- {kernels} kernels: safe {its['safe']} at depth {depths}; the others differ by {gaps or 'nothing'}"


def _same_text(found: Found) -> Iterator[str]:
    rows = [
        [each["mode"], f"{each['texts'] - each['differing']} of {each['texts']}", each["drafted"],
         ", ".join(map(str, each["first_differences"]))]
        for each in found
    ]  # fmt: skip
    yield from _table(["mode", "same text as off", "drafted", "forks at"], rows)


def _several(found: Found) -> Iterator[str]:
    for each in found:
        rates = ", ".join(f"{mode} {rate}" for mode, rate in each["tokens_per_s"].items())
        yield (
            f"{each['at_once']} at a time: {rates} tokens/s, ratio {each['ratio']}; "
            f"{each['same_text']} of {each['texts']} texts the same"
        )


def _llama_bench(found: Found) -> Iterator[str]:
    rows = [
        [f"tg{each['n_gen']}" if each["n_gen"] else f"pp{each['n_prompt']}", f"{each['avg_ts']:.1f}",
         f"{each['stddev_ts']:.1f}", f"{each['avg_ns'] / 1e6:.1f}"]
        for each in found
    ]  # fmt: skip
    yield from _table(["test", "tokens/s", "±", "ms"], rows)


def _other(found: Found) -> Iterator[str]:
    yield from (f"- {_line(each)}" for each in found)


_SECTIONS: Mapping[str, Callable[[Found], Iterator[str]]] = {
    "devices": _devices,
    "cost of a pass": _costs,
    "speed": _speed,
    "memory": _memory,
    "first token": _first,
    "cancelling": _cancelling,
    "safe widths": _widths,
    "same text": _same_text,
    "several sequences": _several,
    "llama-bench": _llama_bench,
}


def _table(heads: Sequence[str], rows: Sequence[Row]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for row in rows:
        yield f"| {' | '.join(_line(each).replace('|', '/') for each in row)} |"


def _number(value: object, digits: int) -> str:
    return f"{value:.{digits}f}" if isinstance(value, int | float) else ""


def _line(value: object) -> str:
    return " ".join(str(value).split())
