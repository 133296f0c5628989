"""The picture of the house: rooms and plug-ins, each with its code lines, and what imports what, from the sources.

    python -m lab.house        # writes docs/pictures/house.svg again

Rows are floors: a room stands above all that it imports. An arrow that follows from others is left out; of plug-ins only those to
other plug-ins are drawn, since every plug-in may import the core.
"""

import ast
from collections.abc import Mapping
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs/pictures/house.svg"
_PLUG_IN = "plugins."
_WIDTH, _HEIGHT, _GAP, _ROW, _EDGE = 108, 34, 14, 70, 20


def room_of(module: str) -> str:
    """Return the room of a module of ours: its folder or file, of a plug-in with its name; empty for the package itself."""
    parts = module.split(".")[1:]
    return ".".join(parts[: 2 if parts[:1] == ["plugins"] else 1])


def house() -> tuple[dict[str, int], dict[str, set[str]]]:
    """Return the code lines of each room, and which other rooms it imports; whatever is imported only for types counts, too."""
    lines, needs = dict[str, int](), dict[str, set[str]]()
    for path in sorted((ROOT / "localspec").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        room, text = room_of(module), path.read_text(encoding="utf-8")
        if room in {"", "__main__", "plugins", "api"}:
            continue
        lines[room] = lines.get(room, 0) + code_lines(text)
        found = needs.setdefault(room, set())
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("localspec."):
                found.add(room_of(node.module or ""))
    return lines, {room: found & lines.keys() - {room} for room, found in needs.items()}


def code_lines(text: str) -> int:
    """Return the lines that are neither empty, comment, nor docstring."""
    tree = ast.parse(text)
    docs = set[int]()
    for node in ast.walk(tree):
        for each in (
            getattr(node, "body", ()) if not isinstance(node, ast.Lambda | ast.IfExp) else ()
        ):
            if (
                isinstance(each, ast.Expr)
                and isinstance(each.value, ast.Constant)
                and isinstance(each.value.value, str)
            ):
                docs |= set(range(each.lineno, (each.end_lineno or each.lineno) + 1))
    every = enumerate(text.splitlines(), 1)
    return sum(
        1
        for at, line in every
        if line.strip() and not line.strip().startswith("#") and at not in docs
    )


def floors(needs: Mapping[str, set[str]]) -> dict[str, int]:
    """Return how high each room stands: one above the highest that it imports."""
    heights = dict[str, int]()

    def height(room: str) -> int:
        if room not in heights:
            heights[room] = 1 + max(map(height, needs[room]), default=-1)
        return heights[room]

    for room in needs:
        height(room)
    return heights


def direct(needs: Mapping[str, set[str]]) -> set[tuple[str, str]]:
    """Return the imports that do not follow from others."""

    def below(room: str) -> set[str]:
        return needs[room].union(*map(below, needs[room]))

    return {
        (room, each)
        for room, found in needs.items()
        for each in found
        if not any(each in below(other) for other in found - {each})
    }


def drawn() -> str:
    """Return the picture."""
    lines, needs = house()
    core = {room: found for room, found in needs.items() if not room.startswith(_PLUG_IN)}
    heights, top = floors(core), 1 + max(floors(core).values())
    plug_ins = {
        room: {each for each in found if each.startswith(_PLUG_IN)}
        for room, found in needs.items()
        if room not in core
    }
    for room, over in floors(plug_ins).items():
        heights[room] = top + over
    rows = [
        [room for room in sorted(lines) if heights[room] == at]
        for at in range(max(heights.values()) + 1)
    ]
    widest = max(len(row) for row in rows) * (_WIDTH + _GAP) - _GAP + 2 * _EDGE
    places = dict[str, tuple[float, float]]()
    for at, row in enumerate(reversed(rows)):
        left = (widest - len(row) * (_WIDTH + _GAP) + _GAP) / 2
        for number, room in enumerate(row):
            places[room] = (left + number * (_WIDTH + _GAP), _EDGE + at * _ROW)
    total = {
        kind: sum(n for room, n in lines.items() if room.startswith(_PLUG_IN) is kind)
        for kind in (True, False)
    }
    high = len(rows) * _ROW + 2 * _EDGE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {widest} {high}" font-family="sans-serif" font-size="12">',
        f"<title>Rooms of localspec: core {total[False]} code lines, plug-ins {total[True]}</title>",
        f'<rect width="{widest}" height="{high}" fill="white"/>',
    ]
    for room, other in sorted(direct(core) | direct(plug_ins)):
        (x, y), (to_x, to_y) = places[room], places[other]
        half = _WIDTH / 2
        parts.append(
            f'<path d="M{x + half:g} {y + _HEIGHT}L{to_x + half:g} {to_y}" stroke="#bbb" fill="none"/>'
        )
    for room, (x, y) in sorted(places.items()):
        fill = "#fde9c8" if room.startswith(_PLUG_IN) else "#dbe9f6"
        parts.append(
            f'<rect x="{x:g}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="4" fill="{fill}" stroke="#888"/>'
        )
        parts.append(
            f'<text x="{x + _WIDTH / 2:g}" y="{y + 15}" text-anchor="middle">{escape(room.removeprefix(_PLUG_IN))}</text>'
        )
        parts.append(
            f'<text x="{x + _WIDTH / 2:g}" y="{y + 28}" text-anchor="middle" font-size="10" fill="#555">{lines[room]} lines</text>'
        )
    words = f"core (blue): {total[False]} code lines · plug-ins (yellow): {total[True]}"
    parts += [f'<text x="{_EDGE}" y="{high - 8}" fill="#555">{words}</text>', "</svg>", ""]
    return "\n".join(parts)


if __name__ == "__main__":
    PICTURE.write_text(drawn(), encoding="utf-8")
