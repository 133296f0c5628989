"""Jinja templates, rendered in a process of their own, so that a hostile one hurts nothing but that.

The process serves the whole program, one template after the other. It is started for the first, and again after
one that ended it: by more than `MOST_S` of its processor's time, or `MOST_BYTES` of memory.
"""

import atexit
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

MOST_S = 10.0
"""Processor time of one rendering; what renders at all takes milliseconds, so a slow machine makes no difference."""
MOST_BYTES = 1 << 30
"""Of address space; macOS does not hold a process to it."""
MOST_CHARS = 1 << 25
"""Of the text."""

_COMMAND = (sys.executable, "-P", "-m", "localspec.chat.jinja_process")


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


class _Renderer:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        atexit.register(self.end)

    def ask(self, question: bytes) -> dict[str, Any]:
        with self._lock:
            try:
                return self._exchange(question)
            except OSError as error:
                self.end()
                raise JinjaError(f"its process cannot be used ({error.strerror})") from error
            except BaseException:  # Ctrl-C between question and answer, too
                self.end()
                raise

    def child(self) -> "subprocess.Popen[bytes]":
        if self._child is None or self._child.poll() is not None:
            self.end()
            self._child = subprocess.Popen(  # noqa: S603 - the command is ours
                _COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is not for it
            )
        return self._child

    def start(self) -> None:
        with self._lock, suppress(OSError):  # said where a template is rendered
            self.child()

    def _exchange(self, question: bytes) -> dict[str, Any]:
        child = self.child()
        assert child.stdin is not None  # noqa: S101 - it is a pipe
        assert child.stdout is not None  # noqa: S101
        child.stdin.write(question)
        child.stdin.flush()
        line = child.stdout.readline()
        if not line.endswith(b"\n"):
            late = child.wait() == -signal.SIGPROF
            bound = f"{MOST_S:g} s" if late else f"{MOST_BYTES >> 20} MiB of memory"
            raise JinjaError(f"it takes more than {bound}", late=late)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None


_renderer = _Renderer()


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
    question = (MOST_S, MOST_BYTES, source, strict, variables, zone, MOST_CHARS)
    line = json.dumps(question, ensure_ascii=False).encode(errors="surrogatepass") + b"\n"
    answer = _renderer.ask(line)
    if "text" not in answer:
        raise JinjaError(answer["reason"], answer.get("line"))
    text: str = answer["text"]
    return text
