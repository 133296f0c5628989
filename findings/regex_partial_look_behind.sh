#!/usr/bin/env bash
# One would guess: a partial match of the `regex` package begins where the text may still become a match.
# What happens: behind a look behind of a literal of two or three characters and a class that is repeated a variable number of
# times, `partial=True` reports a match that has begun where none can: `0,` is no beginning of eight digits, and what has to stand
# before it does not. With a fixed count, with one literal character, or without `partial`, the answer is right.
# Version: regex 2026.11.19, Python 3.11. Date: 29 November 2026.
# Who meets it: whoever holds back text of a stream until it is decided (filters, lexers, editors): it is held back for nothing, and
# differently depending on how the stream is cut.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q regex==2026.11.19 > "$folder/pip.log" 2>&1
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import regex

TEXT = "zzzzzzzzAAAA0,"


def begun(pattern: str) -> str:
    """Return what is said to have begun before the end of the text."""
    match = regex.search(pattern, TEXT, partial=True)
    print(f"{pattern:36} {match}")
    return match.group()


print("regex", regex.__version__, "on", repr(TEXT))
wrong = begun(r"(?<=ab[0-9A-F]{1,6})[0-9]{8}")
right = [begun(rf"(?<={behind})[0-9]{{8}}") for behind in ("ab[0-9A-F]{2}", "a[0-9A-F]{1,6}", "ab")]
print("without partial:", regex.search(r"(?<=ab[0-9A-F]{1,6})[0-9]{8}", TEXT))
sys.exit(0 if (wrong, right) == ("0,", ["", "", ""]) else 1)
PYTHON
