"""LineTemplate: a user's template makes a prompt of a line's fields, in a process of its own."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from localspec.chat.jinja import JinjaError, render
from localspec.display import printable_line
from localspec.errors import TemplateError
from localspec.storage.paths import read_named, shown

_MOST_BYTES = 1 << 20


class LineTemplate:
    """Makes a prompt of fields. What is not a field is an error, not nothing.

    Args:
        source: the template; one newline at its end is not part of it.
        name: what messages call it.
        given: what they call its fields.

    Raises:
        TemplateError: it is no jinja.
    """

    def __init__(self, source: str, name: str, given: str = "this line") -> None:
        self.source = source
        self._name, self._given = name, given
        try:
            self._render(None)
        except JinjaError as error:
            where = name if error.line is None else f"{name}:{error.line}"
            raise TemplateError(
                f"{where}: is not a Jinja template ({_reason(error)}): fix it"
            ) from None

    def render(self, fields: Mapping[str, Any]) -> str:
        """Return the prompt of a line.

        Raises:
            TemplateError: a field is missing, or the template fails on these.
        """
        try:
            return self._render(fields)
        except JinjaError as error:
            raise TemplateError(f"{self._name} fails on {self._given}: {_reason(error)}") from error

    def _render(self, fields: Mapping[str, Any] | None) -> str:
        return render(self.source, fields, datetime.now().astimezone(), strict=True)


def read_template(path: Path) -> LineTemplate:
    """Read a template from a file.

    Raises:
        ModelUnavailable: the file cannot be read.
        UsageError: it is no text of a sensible size.
        TemplateError: it is no jinja.
    """
    return LineTemplate(read_named(path, _MOST_BYTES, "give a template, not data"), shown(path))


def _reason(error: Exception) -> str:
    return printable_line(str(error))[:300]
