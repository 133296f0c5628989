"""Floors and rooms: who may import whom, read from the sources with ast."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import localspec

PACKAGE = Path(localspec.__file__).parent

# From the top floor down; rooms on one floor do not know each other.
FLOORS: list[set[str]] = [
    {"__main__"},
    {"cli"},
    {"ui", "batch", "bench", "serve", "diagnosis"},
    {""},  # the package itself: its public face
    {"child"},  # the engine's process: its main
    {"launch", "parallel"},
    {"loading", "recording"},
    {"drafting", "informed", "engine", "config", "fitting", "calibration"},
    {"chat", "telemetry", "history"},
    {"llama", "models"},
    {"decoding", "structured"},
    {"storage"},
    {"errors"},
]
# Third-party packages with one home.
HOMES = {
    "llama_cpp": ("localspec.llama",),
    "textual": ("localspec.ui",),
    "huggingface_hub": ("localspec.models.hub",),
}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        yield name, ast.parse(path.read_text())


def imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def floor(module: str) -> int:
    return next(i for i, rooms in enumerate(FLOORS) if room(module) in rooms)


def test_every_room_has_a_floor() -> None:
    for name, _ in modules():
        floor(name)


def test_a_room_imports_only_from_floors_below() -> None:
    wrong = [
        f"{name} imports {imported}"
        for name, tree in modules()
        for imported in imports(tree)
        if imported.split(".")[0] == "localspec"
        and room(imported) != room(name)
        and imported != "localspec"
        and floor(imported) <= floor(name)
    ]
    assert wrong == []


def test_external_packages_have_one_home() -> None:
    wrong = [
        f"{name} imports {imported}"
        for name, tree in modules()
        for imported in imports(tree)
        if (home := HOMES.get(imported.split(".")[0])) and not name.startswith(home)
    ]
    assert wrong == []


def test_decoding_knows_only_numpy_and_the_standard_library() -> None:
    allowed = {*sys.stdlib_module_names, "numpy", "localspec"}
    wrong = [
        f"{name} imports {imported}"
        for name, tree in modules()
        if name.startswith("localspec.decoding")
        for imported in imports(tree)
        if imported.split(".")[0] not in allowed
    ]
    assert wrong == []
