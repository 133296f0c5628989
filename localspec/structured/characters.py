"""Characters of JSON strings: sets of code points, and how a string spells them."""

from collections.abc import Iterable

Ranges = tuple[tuple[int, int], ...]
"""First and last code point of each, ascending, none touching the next."""

LAST = 0x10FFFF
_SHORT = {0x08: "b", 0x09: "t", 0x0A: "n", 0x0C: "f", 0x0D: "r", 0x22: '\\"', 0x5C: "\\\\"}
_SURROGATES = (0xD800, 0xDFFF)


def united(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return the same code points in order, and without surrogates, which no text holds."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(_without_surrogates(ranges)):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def inverse(ranges: Iterable[tuple[int, int]], last: int = LAST) -> Ranges:
    """Return all other code points up to `last`."""
    found, start = [], 0
    for low, high in united(ranges):
        if low > start:
            found.append((start, min(low - 1, last)))
        start = max(start, high + 1)
    return united([*found, (start, last)] if start <= last else found)


def spelled(ranges: Ranges) -> str:
    """Return one character of these as GBNF, as a JSON string spells it; "" where there is none."""
    plain: list[str] = []
    escaped: list[str] = []
    for low, high in ranges:
        controls = range(low, min(high, 0x1F) + 1)
        special = [code for code in (*controls, 0x22, 0x5C) if low <= code <= high]
        escaped += [f'"\\\\{_SHORT.get(code, f"u{code:04x}")}"' for code in special]
        plain += [_range(*part) for part in _without_quotes(max(low, 0x20), high)]
    classes = [f"[{''.join(plain)}]"] if plain else []
    return " | ".join([*classes, *escaped])


def _without_quotes(low: int, high: int) -> list[tuple[int, int]]:
    parts = [(low, high)]
    for code in (0x22, 0x5C):
        parts = [
            part
            for first, last in parts
            for part in ((first, min(last, code - 1)), (max(first, code + 1), last))
            if part[0] <= part[1]
        ]
    return sorted(set(parts))


def _without_surrogates(ranges: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    for low, high in ranges:
        for part in ((low, min(high, _SURROGATES[0] - 1)), (max(low, _SURROGATES[1] + 1), high)):
            if part[0] <= part[1]:
                yield part


def _range(low: int, high: int) -> str:
    return f"\\U{low:08x}" if low == high else f"\\U{low:08x}-\\U{high:08x}"
