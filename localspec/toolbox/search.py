"""Search: a regular expression in texts, in a process of its own that is ended where it takes too long.

That process runs this module by its path, so it imports the standard library alone. Its input is a JSON object a line:
first the expression, then a name and a text of each file. Its output is `name:line: text`.
"""

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterable

_LOOK_S = 0.05
_MOST_S = 10.0
_MOST_BYTES = 32 << 20
_MOST_CHARS = 200


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
        ValueError: the pattern is no regular expression.
    """
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"the pattern is not a regular expression ({error}): change it") from None
    objects = [json.dumps({"pattern": pattern, "most": most + 1})]
    room, note = _MOST_BYTES, ""
    for name, text in texts:
        room -= len(text)
        if room < 0 or stop.is_set():
            note = f"the search ended before {name}: name a folder"
            break
        objects.append(json.dumps({"name": name, "text": text}))
    lines, stopped = _matches("\n".join(objects), stop)
    if stopped:
        note = f"the search was stopped {stopped}: use a simpler pattern, or name a folder"
    if len(lines) > most:
        note = f"more than {most} lines match: name a folder, or search for more of the line"
    return lines[:most], note


def _matches(objects: str, stop: threading.Event) -> tuple[list[str], str]:
    """Return the output of the other process, and why it was stopped; empty where it was not."""
    command = [sys.executable, "-I", "-S", "-X", "utf8", __file__]
    end_s, why = time.monotonic() + _MOST_S, ""
    with subprocess.Popen(  # noqa: S603 - the command is ours
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        given: bytes | None = objects.encode(errors="replace")
        while True:
            try:
                out, _ = process.communicate(given, timeout=_LOOK_S)
                break
            except subprocess.TimeoutExpired:
                given = None
            if stop.is_set() or time.monotonic() > end_s:
                why = "by the user" if stop.is_set() else f"after {_MOST_S:g} s"
                process.kill()
    text = out.decode(errors="replace").removesuffix("\n")
    return text.split("\n") if text else [], why


def main() -> None:
    """Print the lines that match, as the module says."""
    wanted = json.loads(sys.stdin.buffer.readline())
    pattern, most = re.compile(wanted["pattern"]), wanted["most"]
    for each in sys.stdin.buffer:
        file = json.loads(each)
        for number, line in enumerate(file["text"].removesuffix("\n").split("\n"), 1):
            if pattern.search(line):
                print(f"{file['name']}:{number}: {line.strip()[:_MOST_CHARS]}", flush=True)
                most -= 1
                if not most:
                    return


if __name__ == "__main__":
    main()
