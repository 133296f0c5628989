"""LineTemplate: a user's template makes a prompt of a line's fields, in jinja2's sandbox."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import StrictUndefined
from jinja2 import TemplateError as JinjaError

from localspec.chat.dialect import Dialect
from localspec.display import printable_line
from localspec.errors import TemplateError
from localspec.storage.paths import read_named, shown

_MOST_BYTES = 1 << 20


class LineTemplate:
    """Makes a prompt of fields. What is not a field is an error, not nothing.

    Args:
        source: the template; one newline at its end is not part of it.
        name: what messages call it.

    Raises:
        TemplateError: it is no jinja.
    """

    def __init__(self, source: str, name: str) -> None:
        self.source = source
        self._name = name
        environment = Dialect(lambda: datetime.now().astimezone())
        environment.undefined = StrictUndefined
        try:
            self._template = environment.from_string(source)
        except JinjaError as error:
            line = getattr(error, "lineno", None)
            where = name if line is None else f"{name}:{line}"
            raise TemplateError(
                f"{where}: is not a Jinja template ({_reason(error)}): fix it"
            ) from None

    def render(self, fields: Mapping[str, Any]) -> str:
        """Return the prompt of a line.

        Raises:
            TemplateError: a field is missing, or the template fails on these.
        """
        try:
            return self._template.render(fields)
        except Exception as error:  # a template may raise whatever Python can
            raise TemplateError(f"{self._name} fails on this line: {_reason(error)}") from error


def read_template(path: Path) -> LineTemplate:
    """Read a template from a file.

    Raises:
        ModelUnavailable: the file cannot be read.
        UsageError: it is no text of a sensible size.
        TemplateError: it is no jinja.
    """
    return LineTemplate(read_named(path, _MOST_BYTES, "give a template, not data"), shown(path))


def _reason(error: Exception) -> str:
    return printable_line(str(error))[:300] or type(error).__name__
