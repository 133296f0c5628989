"""The jinja2 dialect of chat templates: what Hugging Face's renderer adds to jinja2, in a sandbox with a budget.

Whatever a template does is counted before or after it is done, see `budget`: turns of loops, calls, filters, what is
compared, built and written. So it ends in bounded time and memory, whatever it is. Knows nothing of messages or models.

Source: `_compile_jinja_template` in `transformers/utils/chat_template_utils.py`.
"""

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Template, nodes
from jinja2 import TemplateError as JinjaError
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from localspec.chat.budget import STEP, budget, counted, made, spend
from localspec.chat.counting import Counting
from localspec.chat.guards import (
    check_call,
    check_format,
    check_numbers,
    guarded_filters,
    guarded_tests,
)

MAX_REPEATED_ITEMS = 1 << 20


class GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}` marks assistant text for training; here it is only its body."""

    tags = {"generation"}  # noqa: RUF012  # declared so by jinja2

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Return the statements between the two tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class BoundedTemplate(Template):
    """A template that gets a budget each time it is rendered, larger for a larger conversation."""

    def generate(self, *args: Any, **named: Any) -> Iterator[str]:
        """Yield the text in pieces."""
        with budget((args, named)):
            for piece in super().generate(*args, **named):
                spend(1 + (len(piece) >> 3))
                yield piece

    def render(self, *args: Any, **named: Any) -> str:
        """Return the text."""
        return "".join(self.generate(*args, **named))


class Dialect(ImmutableSandboxedEnvironment):
    """The environment that chat templates are written for.

    Args:
        clock: what `strftime_now` reads.
    """

    intercepted_binops = frozenset({"*", "**", "+", "-", "/", "//", "%"})
    template_class = BoundedTemplate

    def __init__(self, clock: Callable[[], datetime]) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[GenerationTag, LoopControlExtension],
            finalize=_written,
        )
        self.filters = guarded_filters({**self.filters, "tojson": _tojson})
        self.tests = guarded_tests(self.tests)
        self.globals.pop("lipsum")
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = lambda style: clock().strftime(style)

    def from_string(self, source: str | nodes.Template, *args: Any, **named: Any) -> Template:
        """Compile a template; what is constant in it is calculated here, within a budget too."""
        with budget():
            tree = self.parse(source) if isinstance(source, str) else source
            return super().from_string(Counting().visit(tree), *args, **named)

    def call(self, context: Context, called: Any, /, *args: Any, **named: Any) -> Any:
        """Call what may be called, and count it; the name is jinja2's."""
        if called is self.made or called is self.counted or called is self.concatenated:
            return called(*args)
        result = super().call(context, called, *check_call(called, args, named), **named)
        spend(STEP)
        made(result)
        return result

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Refuse what would fill the memory: powers, and repetition beyond `MAX_REPEATED_ITEMS`."""
        if operator == "**":
            raise SecurityError("powers are not allowed")
        check_numbers(left, right)
        if operator == "*":
            _check_repetition(left, right)
            _check_repetition(right, left)
        if operator == "%" and isinstance(left, str):
            check_format(left, right)
        result = super().call_binop(context, operator, left, right)
        made(result)
        return result

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Return an item; a key that holds other values is counted, since it is hashed."""
        if isinstance(argument, tuple):
            made(argument)
        return super().getitem(obj, argument)

    # What `Counting` has templates call.

    gathers = True
    counted = staticmethod(counted)

    @staticmethod
    def made(value: Any) -> Any:
        """Return a value that was built, or is compared, once it is counted."""
        made(value)
        return value

    @staticmethod
    def concatenated(*parts: Any) -> str:
        """Return what `~` makes."""
        made(parts)
        return "".join(map(str, parts))


def _check_repetition(items: Any, times: Any) -> None:
    if (
        hasattr(items, "__len__")
        and isinstance(times, int)
        and len(items) * times > MAX_REPEATED_ITEMS
    ):
        raise SecurityError(f"a repetition of more than {MAX_REPEATED_ITEMS} items")


def _written(value: Any) -> str:
    text = str(value)
    made(text)
    return text


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
    if isinstance(value, Iterator):  # what `map` and `select` make
        value = list(value)
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
