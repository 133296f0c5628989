"""Plants a bug by an operator on the syntax tree of a function: the function object stays the same one.

A place is the how-manieth node of a kind, in the order of the source: `call NAME`, `if` (any condition), `compare`,
`index` and `bound` (of subscripts), `add`, `choice` (`… if … else …`), `star`, `return`, `delete`, `name NAME`. What
takes its place is an expression in which `_` is the node that stood there, or a statement.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FunctionType
from typing import NamedTuple

import pytest


class Bug(NamedTuple):
    """A bug by its name, function, kind of place, what takes that place, and which of its kind it is."""

    name: str
    function: object
    kind: str
    wrong: str
    which: int = 0


def table(text: str, *functions: object) -> list[Bug]:
    """Return bugs of a table: the name of a function, and below it `name | kind, and which | what takes the place`."""
    by_name = {getattr(each, "__qualname__", ""): each for each in functions}
    bugs, function = list[Bug](), functions[0]
    for line in filter(None, map(str.strip, text.splitlines())):
        name, *cells = line.split(" | ")
        if not cells:
            function = by_name[name]
            continue
        kind, which = re.fullmatch(r"(.*?) ?(-?\d*)", cells[0]).groups()  # type: ignore[union-attr]
        bugs.append(Bug(name, function, kind, cells[1], int(which or 0)))
    return bugs


def table_of(test: str, name: str, *functions: object) -> list[Bug]:
    """Return the bugs of a table in the `bugs.txt` beside a test's file, behind a line `# NAME`."""
    text = Path(test).with_name("bugs.txt").read_text()
    return table(text.partition(f"# {name}\n")[2].partition("\n# ")[0], *functions)


def _parts(node: ast.AST, kind: str) -> Iterator[ast.AST | None]:
    sort, _, name = kind.partition(" ")
    if sort in {"call", "name"}:
        named = node.func if isinstance(node, ast.Call) and sort == "call" else node
        is_call = isinstance(node, ast.Call) == (sort == "call")
        if is_call and name in {getattr(named, "id", None), getattr(named, "attr", None)}:
            yield node if isinstance(getattr(node, "ctx", ast.Load()), ast.Load) else None
    elif sort == "if":
        yield getattr(node, "test", None)
        yield from getattr(node, "ifs", ())
    elif isinstance(node, ast.Subscript):
        if sort == "index" and not isinstance(node.slice, ast.Slice):
            yield node.slice
        if sort == "bound" and isinstance(node.slice, ast.Slice):
            yield from (node.slice.lower, node.slice.upper)
    elif isinstance(node, ast.BinOp):
        yield node if sort == "add" and isinstance(node.op, ast.Add) else None
    elif isinstance(node, ast.Starred | ast.Return):
        sorts = {"star": ast.Starred, "return": ast.Return}
        yield node.value if isinstance(node, sorts.get(sort, ())) else None
    else:
        others = {"compare": ast.Compare, "choice": ast.IfExp, "delete": ast.Delete}
        yield node if isinstance(node, others.get(sort, ())) else None


def places(tree: ast.AST, kind: str) -> list[ast.AST]:
    """Return all nodes of a kind in the order of the source."""
    nodes = [part for node in ast.walk(tree) for part in _parts(node, kind) if part is not None]
    return sorted(nodes, key=lambda node: (node.lineno, node.col_offset))  # type: ignore[attr-defined]


class _Swap(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self._new if node is self._old else self.generic_visit(node)


class _Fill(ast.NodeTransformer):
    def __init__(self, old: ast.AST) -> None:
        self._old = old

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self._old if node.id == "_" else node


def plant(
    monkeypatch: pytest.MonkeyPatch, bug: Bug, names: Mapping[str, object] | None = None
) -> None:
    """Plant a bug until the test ends.

    Args:
        monkeypatch: undoes it.
        bug: of a plain function or method, without closure.
        names: globals that it needs and the module of the function has not.
    """
    function = bug.function
    assert isinstance(function, FunctionType)
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    (planted,) = tree.body
    assert isinstance(planted, ast.FunctionDef)
    planted.decorator_list, planted.returns = [], None
    for argument in (*planted.args.args, *planted.args.kwonlyargs):
        argument.annotation = None
    nodes = places(planted, bug.kind)
    assert len(nodes) > bug.which, f"{function.__qualname__} has {len(nodes)} of {bug.kind}"
    old = nodes[bug.which]
    (new,) = ast.parse(bug.wrong).body
    filled = _Fill(old).visit(new.value if isinstance(new, ast.Expr) else new)
    _Swap(old, filled).visit(tree)
    module = dict(function.__globals__)
    exec(compile(ast.fix_missing_locations(tree), "<planted>", "exec"), module)
    broken = module[function.__name__]
    assert isinstance(broken, FunctionType)
    for name, value in (names or {}).items():
        monkeypatch.setitem(function.__globals__, name, value)
    monkeypatch.setattr(function, "__code__", broken.__code__)
