"""Search: a regular expression in the files of a folder, in a process that is stopped where it takes too long."""

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterable

from localspec.errors import UsageError
from localspec.toolbox import matching

_LOOK_S = 0.05
_MOST_S = 10.0
_MOST_BYTES = 32 << 20


def search(
    pattern: str, texts: Iterable[tuple[str, str]], most: int, stop: threading.Event
) -> tuple[list[str], str]:
    """Return lines that match, as `name:line: text`, and a note where there may be more; empty where there are none.

    Args:
        pattern: a regular expression of Python's.
        texts: names and contents of files, read as long as there is room.
        most: lines at most.
        stop: once set, it ends.

    Raises:
        UsageError: the pattern is none.
    """
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(f"the pattern is no regular expression ({error}): change it") from None
    asked = [json.dumps({"pattern": pattern, "most": most + 1})]
    room, note = _MOST_BYTES, ""
    for name, text in texts:
        room -= len(text)
        if room < 0 or stop.is_set():
            note = f"the search ended before {name}: name a folder"
            break
        asked.append(json.dumps({"name": name, "text": text}))
    lines, stopped = _matched("\n".join(asked), stop)
    if stopped:
        note = f"the search was stopped {stopped}: use a simpler pattern, or name a folder"
    if len(lines) > most:
        note = f"more than {most} lines match: name a folder, or search for more of the line"
    return lines[:most], note


def _matched(asked: str, stop: threading.Event) -> tuple[list[str], str]:
    """Return what the other process found, and why it was stopped; empty where it was not."""
    command = [sys.executable, "-I", "-S", "-X", "utf8", matching.__file__]
    end_s, why = time.monotonic() + _MOST_S, ""
    with subprocess.Popen(  # noqa: S603 - the command is ours
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as started:
        given: bytes | None = asked.encode(errors="replace")
        while True:
            try:
                out, _ = started.communicate(given, timeout=_LOOK_S)
                break
            except subprocess.TimeoutExpired:
                given = None
            if stop.is_set() or time.monotonic() > end_s:
                why = "by the user" if stop.is_set() else f"after {_MOST_S:g} s"
                started.kill()
    return out.decode(errors="replace").splitlines(), why
