r"""Units of a text, as rules read it: a character, or a whole escape of JSON or of code, so that none is ever cut in two.

Where a text is JSON or code nobody says, and it may be both in one: so an escape is read as what it stands for and as it is written, and a rule may match
either. Backslashes in a row count as one, since a text may be quoted in a text that is quoted. What takes no place on a screen is read or left out.
"""

import re
from functools import lru_cache

_ESCAPE = re.compile(r"""\\{1,8}(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|["'/bfnrt])?""")
_OPEN = re.compile(r"\\{1,8}(?:u[0-9a-fA-F]{0,3}|x[0-9a-fA-F]?)?")
_CONTROLS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
# Unicode's Default_Ignorable_Code_Point: soft hyphen, zero-width characters, marks of direction, variation selectors.
_IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def units_of(text: str) -> tuple[list[str], str]:
    """Return the units of a text, and its end if that may still become an escape."""
    if "\\" not in text:
        return [*text], ""
    units, at = list[str](), 0
    for match in _ESCAPE.finditer(text):
        units += text[at : match.start()]
        at = match.start()
        if _OPEN.fullmatch(text, at):
            return units, text[at:]
        units.append(match.group())
        at = match.end()
    units += text[at:]
    return units, ""


@lru_cache(4096)
def readings(unit: str) -> tuple[str, ...]:
    """Return how a unit may be read: what it stands for, which may be nothing, and how it is written."""
    written = unit.lstrip("\\")
    if written == unit:
        meant = unit
    elif len(written) > 1:
        meant = chr(int(written[1:], 16))
    else:
        meant = _CONTROLS.get(written, written) or "\\"
    left_out = ("",) if _IGNORABLE.match(meant) else ()
    forms = (*left_out, meant, unit if written == unit else f"\\{written}", unit)
    return tuple(dict.fromkeys(forms))
