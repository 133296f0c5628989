"""Floors and rooms: who may import whom, read from the sources with ast."""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import localspec
from lab.house import PICTURE

PACKAGE = Path(localspec.__file__).parent

# From the top floor down; rooms on one floor do not know each other.
FLOORS: list[set[str]] = [
    {"__main__"},
    {"plugins"},
    {"api"},
    {"cli"},
    {"tui", "batch", "diagnosis"},
    {"setup", "session"},
    {""},  # the package itself: its public face
    {"launch"},
    {"engine", "config"},
    {"plan"},
    {"calibration"},
    {"chat", "telemetry", "history", "retrieval"},
    {"toolbox"},
    {"llama", "grammar", "models"},
    {"decoding"},
    {"options", "messages", "calls", "gates"},
    {"storage"},
    {"resources", "media", "bounded_process", "markup", "entry_points"},
    {"errors", "display"},
]
# Third-party packages with one home.
HOMES = {
    "jinja2": ("localspec.chat.jinja_process",),
    "markdown_it": ("localspec.markup", "localspec.tui.markdown"),
    "llama_cpp": ("localspec.llama",),
    "llguidance": ("localspec.grammar",),
    "textual": ("localspec.tui",),
    "PIL": ("localspec.media",),
    "sounddevice": ("localspec.session.microphone",),
    "huggingface_hub": ("localspec.models.hub",),
    "mcp": ("localspec.toolbox.mcp", "localspec.plugins.mcp_server.tools"),
    "docx": ("localspec.retrieval",),
    "lxml": ("localspec.retrieval",),
    "pypdf": ("localspec.retrieval",),
    "httpx2": ("localspec.plugins.remote", "localspec.toolbox.mcp"),
    **dict.fromkeys(("prometheus_client", "starlette", "uvicorn"), ("localspec.plugins.serve",)),
    "websockets": ("localspec.plugins.remote",),
    "mcp_types": ("localspec.toolbox.mcp", "localspec.plugins.mcp_server.tools"),
}


@cache
def modules() -> tuple[tuple[str, ast.Module], ...]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.append((name, ast.parse(path.read_text())))
    return tuple(found)


@cache
def nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree))


@cache
def imports(tree: ast.Module) -> tuple[str, ...]:
    found: list[str] = []
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            found += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            found.append(node.module or "")
    return tuple(found)


def room(module: str) -> str:
    """Return the first folder below the package; of a plug-in with its own name: each is a room."""
    parts = module.split(".")[1:]
    return ".".join(parts[: 2 if parts[:1] == ["plugins"] else 1])


def floor(module: str) -> int:
    top = room(module).partition(".")[0]
    return next(i for i, rooms in enumerate(FLOORS) if top in rooms)


def imported_plug_ins(module: str) -> set[str]:
    """Return the other plug-ins that one imports by what the docstring of its folder says."""
    docstring = ast.get_docstring(dict(modules())[f"localspec.{room(module)}"]) or ""
    line = next((each for each in docstring.splitlines() if each.startswith("Imports: ")), "")
    return {f"plugins.{each}" for each in line.split("`")[1::2]}


def neighbours() -> dict[str, set[str]]:
    """Return which modules of its own room each module imports, at its top or anywhere inside."""
    trees = dict(modules())
    graph: dict[str, set[str]] = {}
    for name, tree in trees.items():
        found = set(imports(tree))
        for node in nodes(tree):
            if isinstance(node, ast.ImportFrom):
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
        graph[name] = {
            each for each in found if each in trees and each != name and room(each) == room(name)
        }
    return graph


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Return the sets of nodes that reach each other."""

    def reached(start: str) -> set[str]:
        seen, waiting = set[str](), [start]
        while waiting:
            for each in graph[waiting.pop()] - seen:
                seen.add(each)
                waiting.append(each)
        return seen

    reach = {name: reached(name) for name in graph}
    found: list[set[str]] = []
    for name in sorted(graph):
        if name in reach[name] and not any(name in each for each in found):
            found.append({other for other in reach[name] if name in reach[other]})
    return found


def test_no_room_has_a_circle_inside() -> None:
    assert circles(neighbours()) == []


def test_rooms_import_each_other_in_no_circle() -> None:
    graph: dict[str, set[str]] = {}
    for name, tree in modules():
        needed = {room(each) for each in imports(tree) if each.split(".")[0] == "localspec"}
        # Everybody may read the package's version.
        graph.setdefault(room(name), set()).update(needed - {room(name), ""})
    assert circles(graph) == []


def test_the_core_imports_no_plug_in_and_each_says_which_other_it_imports() -> None:
    """Also by name: whatever reaches a plug-in comes in by an entry point."""
    rooms = {room(name) for name, _ in modules() if room(name).startswith("plugins.")}
    named = {
        (room(name), f"plugins.{node.value.split('.')[2]}")
        for name, tree in modules()
        for node in nodes(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if node.value.startswith("localspec.plugins.")
    }
    imported = {(room(name), room(each)) for name, each in edges()}
    reached = {(a, b) for a, b in imported | named if b.startswith("plugins.") and a != b}
    stated = {(each, other) for each in rooms for other in imported_plug_ins(f"localspec.{each}")}
    assert reached == stated
    for each in rooms:
        docstring = ast.get_docstring(dict(modules())[f"localspec.{each}"]) or ""
        assert all(word in docstring for word in ("Touches: ", "Page: ", "Deleted: ")), each


def test_a_circle_is_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert circles(graph) == [{"a", "b", "c"}, {"d", "e"}]


def edges() -> Iterator[tuple[str, str]]:
    """Yield every module of ours with everything that it imports."""
    return ((name, imported) for name, tree in modules() for imported in imports(tree))


def test_a_room_imports_only_from_floors_below() -> None:
    wrong = [
        (name, imported)
        for name, imported in edges()
        if imported.startswith("localspec.")
        and room(imported) != room(name)
        and floor(imported) <= floor(name)
        and not (room(name).startswith("plugins.") and room(imported) in imported_plug_ins(name))
    ]
    assert wrong == []
    # `run`, and what it shares with the chat, work without screens.
    screens = {name for name, imported in edges() if room(imported) == "tui" != room(name)}
    assert screens == {"localspec.cli.chat_front"}


ALONE = {"options": {"localspec", "_typeshed"}, "decoding": {"numpy", "localspec"}}


def test_external_packages_have_one_home() -> None:
    wrong = [
        (name, imported)
        for name, imported in edges()
        for top in [imported.split(".")[0]]
        if (top in HOMES and not name.startswith(HOMES[top]))
        or (room(name) in ALONE and top not in {*sys.stdlib_module_names, *ALONE[room(name)]})
    ]
    assert wrong == []


def test_a_class_name_stands_once() -> None:
    names = [
        node.name
        for _, tree in modules()
        for node in nodes(tree)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert {name for name in names if names.count(name) > 1} == set()


def test_the_picture_of_the_house_has_every_room() -> None:
    """After a room came or went: `python -m lab.house`."""
    drawn = set(re.findall(r">([a-z_]+)</text>", PICTURE.read_text(encoding="utf-8")))
    rooms = {room(name).removeprefix("plugins.") for name, _ in modules()}
    assert drawn == rooms - {"", "__main__", "api", "plugins"}
