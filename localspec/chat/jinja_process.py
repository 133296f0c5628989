"""The process in which `jinja` has templates rendered.

A template is a stranger's program. jinja2's sandbox keeps it from what is not its own; that it ends, and in bounded
memory, the operating system sees to: it ends this process.

Source of the dialect: `_compile_jinja_template` in `transformers/utils/chat_template_utils.py`.
"""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import StrictUndefined, Template, TemplateError, Undefined, nodes
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from localspec.bounded_process import answer_questions

_MOST_REASON_CHARS = 1000
_OF_LISTS = ("append", "pop")
_OF_DICTS = frozenset(dir(dict))
_OF_TEXTS = frozenset(n for n in dir(str) if n[0] != "_") - {"format", "format_map"}


class GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}` marks assistant text for training; here it is only its body."""

    tags = {"generation"}  # noqa: RUF012  # declared so by jinja2

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Return the statements between the two tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Environment(ImmutableSandboxedEnvironment):
    """jinja2's, in which lists can be added to and taken from, as Kimi K2's template does: they are each question's own."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return what jinja2's own does; without its detours a key of a message, or a method of a text, which are safe."""
        kind = type(obj)
        if kind is dict and attribute not in _OF_DICTS:
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        if kind is str and attribute in _OF_TEXTS:
            return getattr(obj, attribute)
        return super().getattr(obj, attribute)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Return whether an attribute may be read."""
        if isinstance(obj, list) and attr in _OF_LISTS:
            return True
        return super().is_safe_attribute(obj, attr, value)


@lru_cache(maxsize=8)
def _compiled(source: str, strict: bool) -> Template:
    environment = _Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[GenerationTag, LoopControlExtension],
        undefined=StrictUndefined if strict else Undefined,
    )
    environment.intercepted_binops = frozenset(("*", "**"))  # so not calculated while it compiles
    environment.filters["tojson"] = _to_json
    environment.filters["from_json"] = json.loads
    environment.filters["safe"] = str  # jinja2's own has it that what is added to it is escaped
    environment.globals["raise_exception"] = _raise_exception
    return environment.from_string(source)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _to_json(
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


def _answer(
    source: str,
    strict: bool,
    variables: dict[str, Any] | None,
    now: tuple[float, float, str],
    most_chars: int,
) -> dict[str, Any]:
    try:
        template = _compiled(source, strict)
        if variables is None:
            return {"text": ""}
        at_s, offset_s, zone = now
        clock = datetime.fromtimestamp(at_s, timezone(timedelta(seconds=offset_s), zone))
        text = template.render({"strftime_now": clock.strftime, **variables})
    except MemoryError:
        raise
    except Exception as error:  # a template may raise whatever Python can
        reason = str(error)[:_MOST_REASON_CHARS].strip() or type(error).__name__
        return {"reason": reason, "line": getattr(error, "lineno", None)}
    if len(text) > most_chars:
        return {"reason": f"it makes more text than {most_chars:,} characters"}
    return {"text": text}


if __name__ == "__main__":
    answer_questions(lambda question: _answer(*question))
