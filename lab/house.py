"""Figures of the house: how large localspec is, how it hangs together, and what a run of it imports.

    python lab/house.py [ROOT] [--no-run]

ROOT is a checkout, by default the one that this file lies in. Code lines are those that hold
neither nothing, nor a comment, nor a docstring alone. `--no-run` leaves out what needs a process.
"""

import argparse
import ast
import os
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

PACKAGE = "localspec"
FRAGMENT_LINES, LONG_FUNCTION = 45, 60
OPTION = "temperature"
"""The option whose way through the code is counted: each place that names it could forget it."""

_DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)

_COUNTING = """
import sys
from localspec.__main__ import main
try:
    main()
finally:
    print("imported:", *(each for each in sys.modules if each.split(".")[0] == "localspec"), file=sys.stderr)
"""
RUN = (
    "run",
    "--target",
    "smollm2-135m",
    "--max-tokens",
    "4",
    "--seed",
    "1",
    "--offline",
    "--quiet",
    "Hi",
)


@dataclass(frozen=True, slots=True)
class Function:
    """One function, and how many lines it has from `def` to its end."""

    name: str
    line: int
    lines: int


@dataclass(frozen=True, eq=False)
class Module:
    """One module, read and parsed."""

    name: str
    path: Path
    text: str = field(repr=False)

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree."""
        return ast.parse(self.text)

    @property
    def room(self) -> str:
        """The folder below the package that it lies in."""
        parts = self.name.split(".")
        is_folder = self.path.name == "__init__.py"
        return parts[1] if len(parts) > 2 or (is_folder and len(parts) == 2) else "(root)"

    @property
    def lines(self) -> int:
        """All its lines."""
        return self.text.count("\n")

    @cached_property
    def code_lines(self) -> int:
        """Lines with code on them."""
        prose: set[int] = set()
        for node in ast.walk(self.tree):
            if (
                isinstance(node, (ast.Module, *_DEFINITIONS))
                and ast.get_docstring(node) is not None
            ):
                said = node.body[0]
                prose.update(range(said.lineno, (said.end_lineno or said.lineno) + 1))
        rows = enumerate(map(str.strip, self.text.splitlines()), start=1)
        return sum(bool(row) and not row.startswith("#") and at not in prose for at, row in rows)

    def functions(self) -> Iterator[Function]:
        """Yield its functions and methods."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                last = node.end_lineno or node.lineno
                yield Function(node.name, node.lineno, last - node.lineno + 1)

    def classes(self) -> Iterator[str]:
        """Yield the names of its public classes."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name

    def imported(self) -> Iterator[str]:
        """Yield every name that may be a module that it imports, wherever it does."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module
                yield from (f"{node.module}.{alias.name}" for alias in node.names)

    def names(self, option: str) -> bool:
        """Return whether it declares or copies an option: a field, an argument, a key, a flag, a name of it in a text."""
        flag = f"--{option}"
        for node in ast.walk(self.tree):
            match node:
                case ast.arg(arg=name) | ast.keyword(arg=name) if name == option:
                    return True
                case ast.Name(id=name, ctx=ast.Store()) if name == option:
                    return True
                case ast.Attribute(attr=name, ctx=ast.Store()) if name == option:
                    return True
                case ast.Constant(value=str(text)) if text in {option, flag}:
                    return True
        return False


class House:
    """All modules of a package, and who imports whom."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.modules: dict[str, Module] = {}
        for path in sorted((root / PACKAGE).rglob("*.py")):
            dotted = ".".join(path.relative_to(root).with_suffix("").parts)
            name = dotted.removesuffix(".__init__")
            self.modules[name] = Module(name, path, path.read_text())
        self.graph = {
            name: {each for each in module.imported() if each in self.modules and each != name}
            for name, module in self.modules.items()
        }

    def circles(self) -> list[list[str]]:
        """Return the sets of modules that import each other, by any way round."""
        reach = {name: self._reached(name) for name in self.graph}
        found: dict[str, list[str]] = {}
        for name in self.graph:
            circle = sorted(other for other in reach[name] if name in reach[other])
            if name in reach[name]:
                found.setdefault(circle[0], circle)
        return list(found.values())

    def repeated_classes(self) -> dict[str, list[str]]:
        """Return the names of classes that exist in more than one module, and where."""
        where: dict[str, list[str]] = {}
        for name, module in self.modules.items():
            for each in set(module.classes()):
                where.setdefault(each, []).append(name)
        return {each: places for each, places in sorted(where.items()) if len(places) > 1}

    def fragments(self) -> list[str]:
        """Return the short modules that only one other imports."""
        importers = Counter(each for imported in self.graph.values() for each in imported)
        return [
            name
            for name, module in self.modules.items()
            if module.lines < FRAGMENT_LINES and importers[name] == 1 and "__main__" not in name
        ]

    def _reached(self, start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for each in self.graph[waiting.pop()] - seen:
                seen.add(each)
                waiting.append(each)
        return seen


def imported_by(root: Path, *words: str) -> int | str:
    """Return how many of our modules a command has imported when it ends; in words, why that is not known."""
    script = f"import sys\nsys.argv = ['localspec', *{list(words)!r}]\n{_COUNTING}"
    environment = {
        **os.environ,
        "PYTHONPATH": str(root),
        "LOCALSPEC_TELEMETRY": "off",
        "LOCALSPEC_CONFIG_DIR": "/dev/null/none",
    }
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=environment,
        cwd=root,
        check=False,
    )
    told = [line for line in done.stderr.splitlines() if line.startswith("imported: ")]
    if done.returncode or not told:
        return f"not known, it ended with {done.returncode}: {done.stderr.strip()[-200:]}"
    return len(told[-1].split()) - 1


def report(house: House) -> Iterator[str]:
    """Yield the lines of the report that need no process."""
    modules = house.modules.values()
    by_room: Counter[str] = Counter()
    for module in modules:
        by_room[module.room] += module.code_lines
    functions = sorted(each.lines for module in modules for each in module.functions())
    yield (
        f"{by_room.total()} code lines in {len(modules)} modules "
        f"(median {statistics.median(m.lines for m in modules):.0f} lines, "
        f"most {max(m.lines for m in modules)})"
    )
    yield (
        f"{len(functions)} functions: median {statistics.median(functions):.0f} lines, "
        f"95 % {functions[int(0.95 * len(functions))]}, most {functions[-1]}"
    )
    rooms = Counter(module.room for module in modules)
    yield "by room, code lines (modules): " + ", ".join(
        f"{room} {lines} ({rooms[room]})" for room, lines in by_room.most_common()
    )
    circles = house.circles()
    yield f"circles: {len(circles)}"
    yield from (f"  {', '.join(circle)}" for circle in circles)
    repeated = house.repeated_classes()
    yield f"class names that exist more than once: {len(repeated)}"
    yield from (f"  {name}: {', '.join(places)}" for name, places in repeated.items())
    fragments = house.fragments()
    yield f"fragments (under {FRAGMENT_LINES} lines, one importer): {len(fragments)}"
    yield from (f"  {name}" for name in fragments)
    naming = [name for name, module in house.modules.items() if module.names(OPTION)]
    yield f"modules that declare or copy `{OPTION}`: {len(naming)}"
    yield from (f"  {name}" for name in naming)
    for name, module in house.modules.items():
        for each in module.functions():
            if each.lines > LONG_FUNCTION:
                yield f"long: {each.lines} lines, {name}:{each.line} {each.name}"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--no-run", action="store_true", help="start no process")
    options = parser.parse_args()
    house = House(options.root.resolve())
    for line in report(house):
        print(line)
    if not options.no_run:
        for what, words in (("run --help", ("run", "--help")), ("run with SmolLM2", RUN)):
            print(f"modules that `{what}` imports: {imported_by(house.root, *words)}")


if __name__ == "__main__":
    main()
