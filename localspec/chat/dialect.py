"""The jinja2 dialect of chat templates: what Hugging Face's renderer adds to jinja2, in a sandbox.

Knows nothing of messages or models.
Source: `_compile_jinja_template` in `transformers/utils/chat_template_utils.py`.
"""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError as JinjaError
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_REPEATED_ITEMS = 1 << 20


class Generation(Extension):
    """`{% generation %}…{% endgeneration %}` marks assistant text for training; here it is only its body."""

    tags = {"generation"}  # noqa: RUF012  # declared so by jinja2

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Return the statements between the two tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Dialect(ImmutableSandboxedEnvironment):
    """The environment that chat templates are written for.

    Args:
        clock: what `strftime_now` reads.
    """

    # jinja2's sandbox bounds range() but would build "x" * 10**10
    intercepted_binops = frozenset({"*", "**"})

    def __init__(self, clock: Callable[[], datetime]) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[Generation, LoopControlExtension]
        )
        self.filters["tojson"] = _tojson
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = lambda style: clock().strftime(style)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Refuse what would fill the memory: powers, and repetition beyond `MAX_REPEATED_ITEMS`."""
        if operator == "**":
            raise SecurityError("powers are not allowed")
        for items, times in ((left, right), (right, left)):
            if (
                hasattr(items, "__len__")
                and isinstance(times, int)
                and len(items) * times > MAX_REPEATED_ITEMS
            ):
                raise SecurityError(f"a repetition of more than {MAX_REPEATED_ITEMS} items")
        return super().call_binop(context, operator, left, right)


def _raise_exception(message: str) -> NoReturn:
    raise JinjaError(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # jinja2's own escapes < > & ' for HTML and sorts the keys: not what any model was trained on
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
