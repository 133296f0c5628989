"""Counting: puts counters into a template's tree where the sandbox would not see what is done.

The sandbox sees calls, arithmetic and attributes. Seen here besides: turns of loops, lists and slices, what is
compared, `~`, and the plain text that blocks and macros gather before they hand it on. The tree is jinja2's public
one (`Environment.parse`, `NodeTransformer`), so nothing of its compiler is overridden.
"""

from jinja2 import nodes
from jinja2.visitor import NodeTransformer


class Counting(NodeTransformer):
    """Has a template call `counted`, `made` and `concatenated` of its environment. Knows no budget."""

    def __init__(self) -> None:
        self._gathers = 0

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - jinja2's name
        """Count the turns of a loop; a recursive one gathers its text."""
        self._visit_inside(node, gathers=node.recursive)
        node.iter = _call("counted", node.iter)
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        """Count what is compared."""
        self.generic_visit(node)
        compared: list[nodes.Compare | nodes.Operand] = [node, *node.ops]
        for part in compared:
            if not isinstance(part.expr, nodes.Const):
                part.expr = _call("made", part.expr)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        """Count what is joined before it is."""
        self.generic_visit(node)
        return _call("concatenated", *node.nodes)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        """Count slices."""
        self.generic_visit(node)
        return _call("made", node) if isinstance(node.arg, nodes.Slice) else node

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802
        """Count what a list holds."""
        return self._made(node, node.items)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        """Count what a tuple holds; one that is assigned to is none."""
        return self._made(node, node.items) if node.ctx == "load" else node

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802
        """Count what a mapping holds."""
        return self._made(node, [part for item in node.items for part in (item.key, item.value)])

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Node:  # noqa: N802
        """Have text that is gathered written like a value, so that it is counted each time."""
        if not self._gathers:
            return node
        always = nodes.EnvironmentAttribute("gathers", lineno=node.lineno)
        return nodes.And(always, nodes.Const(node.data, lineno=node.lineno), lineno=node.lineno)

    def _visit_inside(self, node: nodes.Node, *, gathers: bool = True) -> nodes.Node:
        self._gathers += gathers
        self.generic_visit(node)
        self._gathers -= gathers
        return node

    visit_Macro = visit_CallBlock = visit_FilterBlock = visit_AssignBlock = visit_Block = (  # noqa: N815
        _visit_inside
    )

    def _made(self, node: nodes.Expr, items: list[nodes.Expr]) -> nodes.Node:
        holds_values = not all(isinstance(item, nodes.Const) for item in items)
        self.generic_visit(node)
        return _call("made", node) if holds_values else node


def _call(name: str, *args: nodes.Node) -> nodes.Call:
    line = args[0].lineno
    counter = nodes.EnvironmentAttribute(name, lineno=line)
    return nodes.Call(counter, list(args), [], None, None, lineno=line)
