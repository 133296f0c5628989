"""Jinja templates, rendered in a process of their own, so that a hostile one hurts nothing but that.

The process serves the whole program, one template after the other. It is started for the first, and again after
one that ended it: by more than `MOST_S` of its processor's time, or `MOST_BYTES` of memory.
"""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from localspec.bounded_process import BoundedProcess, ProcessBounds, ProcessLostError

MOST_S = 10.0
"""Processor time of one rendering; what renders at all takes milliseconds, so a slow machine makes no difference."""
MOST_CLOCK_S = 120.0
MOST_BYTES = 1 << 30
"""Of address space; macOS does not hold a process to it."""
MOST_CHARS = 1 << 25
"""Of the text."""

_renderer = BoundedProcess(Path(__file__).with_name("jinja_process.py"))


class JinjaError(Exception):
    """A template is no jinja, or fails, or went beyond a bound.

    Args:
        reason: what happened.
        line: where in the template; None where that is unknown.
        late: whether it took too long.
    """

    def __init__(self, reason: str, line: int | None = None, *, late: bool = False) -> None:
        super().__init__(reason)
        self.line = line
        self.late = late


def start() -> None:
    """Start the process, so that it is ready where the first template is rendered."""
    _renderer.start()


def render(
    source: str, variables: Mapping[str, Any] | None, now: datetime, *, strict: bool = False
) -> str:
    """Return the text that a template makes.

    Args:
        source: the template.
        variables: values as JSON has them; None only compiles the template.
        now: what `strftime_now` reads, with its time zone.
        strict: whether a variable that is not there is an error.

    Raises:
        JinjaError: it is no template, or fails, or takes too long or too much.
    """
    offset = now.utcoffset()
    zone = (now.timestamp(), offset.total_seconds() if offset else 0.0, now.tzname() or "")
    question = (source, strict, variables, zone, MOST_CHARS)
    try:
        answer = _renderer.ask(question, ProcessBounds(MOST_S, MOST_CLOCK_S, MOST_BYTES))
    except ProcessLostError as error:
        raise JinjaError(str(error), late=error.late) from error
    if "text" not in answer:
        raise JinjaError(answer["reason"], answer.get("line"))
    text: str = answer["text"]
    return text
