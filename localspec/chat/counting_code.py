"""CountingCode: jinja2's compiler, whose code counts what it does where the sandbox would not see it.

The sandbox sees calls, arithmetic and attributes. Seen here besides: turns of loops, lists and slices, what is
compared, `~`, and the plain text that blocks and macros gather before they hand it on.
"""

from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame, operators, optimizeconst


class CountingCode(CodeGenerator):
    """Writes calls of `counted`, `made` and `concatenated` of the environment into a template's code."""

    def visit_For(self, node: nodes.For, frame: Frame) -> None:  # noqa: N802 - jinja2's name
        """Count the turns of a loop."""
        counter = nodes.EnvironmentAttribute("counted", lineno=node.lineno)
        node.iter = nodes.Call(counter, [node.iter], [], None, None, lineno=node.lineno)
        super().visit_For(node, frame)

    @optimizeconst
    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:  # noqa: N802
        """Count what is compared."""
        self.write("(")
        self._made(node.expr, frame)
        for operand in node.ops:
            self.visit(operand, frame)
        self.write(")")

    def visit_Operand(self, node: nodes.Operand, frame: Frame) -> None:  # noqa: N802
        """Count what it is compared with."""
        self.write(f" {operators[node.op]} ")
        self._made(node.expr, frame)

    @optimizeconst
    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        """Count what is joined before it is."""
        self.write("environment.concatenated((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:  # noqa: N802
        """Count slices."""
        self._around(isinstance(node.arg, nodes.Slice), super().visit_Getitem, node, frame)

    def visit_List(self, node: nodes.List, frame: Frame) -> None:  # noqa: N802
        """Count what a list holds."""
        self._around(_holds_values(node.items), super().visit_List, node, frame)

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:  # noqa: N802
        """Count what a tuple holds; one that is assigned to is none."""
        holds = node.ctx == "load" and _holds_values(node.items)
        self._around(holds, super().visit_Tuple, node, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:  # noqa: N802
        """Count what a mapping holds."""
        values = [part for item in node.items for part in (item.key, item.value)]
        self._around(_holds_values(values), super().visit_Dict, node, frame)

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        if frame.buffer is not None and isinstance(node, nodes.TemplateData):
            raise nodes.Impossible  # so that it is counted each time that it is gathered
        return super()._output_child_to_const(node, frame, finalize)

    def _made(self, node: nodes.Node, frame: Frame) -> None:
        self._around(not isinstance(node, nodes.Const), self.visit, node, frame)

    def _around(self, counts: bool, visit: Any, node: nodes.Node, frame: Frame) -> None:
        if counts:
            self.write("environment.made(")
        visit(node, frame)
        if counts:
            self.write(")")


def _holds_values(items: list[Any]) -> bool:
    return not all(isinstance(item, nodes.Const) for item in items)
