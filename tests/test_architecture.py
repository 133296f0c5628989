"""Floors and rooms: who may import whom, read from the sources with ast."""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import localspec

PACKAGE = Path(localspec.__file__).parent

# From the top floor down; rooms on one floor do not know each other.
FLOORS: list[set[str]] = [
    {"__main__"},
    {"cli"},
    {"tailor"},
    {"tui", "batch", "bench", "diagnosis", "serve"},
    {"setup", "session"},
    {""},  # the package itself: its public face
    {"launch"},
    {"remote"},
    {"calibration"},
    {"engine", "config"},
    {"chat", "telemetry", "history", "retrieval"},
    {"toolbox"},
    {"llama", "grammar", "models"},
    {"decoding"},
    {"options", "messages", "calls", "gates"},
    {"storage"},
    {"resources", "media", "bounded_process", "markup"},
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
    "mcp": ("localspec.toolbox.mcp", "localspec.serve.mcp"),
    "docx": ("localspec.retrieval",),
    "lxml": ("localspec.retrieval",),
    "pypdf": ("localspec.retrieval",),
    "httpx2": ("localspec.remote", "localspec.toolbox.mcp"),
    "mcp_types": ("localspec.toolbox.mcp", "localspec.serve.mcp"),
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
def imports(tree: ast.Module) -> tuple[str, ...]:
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            found.append(node.module or "")
    return tuple(found)


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def floor(module: str) -> int:
    return next(i for i, rooms in enumerate(FLOORS) if room(module) in rooms)


def neighbours() -> dict[str, set[str]]:
    """Return which modules of its own room each module imports, at its top or anywhere inside."""
    trees = dict(modules())
    graph: dict[str, set[str]] = {}
    for name, tree in trees.items():
        found = set(imports(tree))
        for node in ast.walk(tree):
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
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert {name for name in names if names.count(name) > 1} == set()
