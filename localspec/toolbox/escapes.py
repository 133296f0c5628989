"""Text of programs without what a terminal would obey, for models and people."""

import re

from localspec.display import printable

# ECMA-48: control sequences, operating-system commands and the like, and two-character escapes.
_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]P_^X][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])"
)


def without_escapes(text: str) -> str:
    """Return a text without escape sequences, and `?` for whatever else a terminal could obey."""
    text = _SEQUENCE.sub("", text).replace("\r\n", "\n")
    # What a carriage return lets stand at last is what a person saw.
    lines = (each.rstrip("\r").rpartition("\r")[2] for each in text.split("\n"))
    return printable("\n".join(lines), "\n\t")
