"""The first frame of the chat as plain terminal sequences, cell for cell as Textual draws it; a test compares the two.

It is there before Textual is imported, so it imports nothing, and knows the two usual themes only.
"""

from collections.abc import Mapping

WELCOME = """\
/    lists the commands
@    attaches a file
F1   lists the keys
F2   shows what drafting saves
F8   chooses another model
Esc  stops an answer"""
PLACEHOLDER = "Ask something. / for commands, @ for files, F1 for keys."
STARTING = "starting the engine"

_LEAST = (40, 12)
_Rgb = tuple[int, int, int]
# Letters and their ground, as Textual mixes them from the themes in `colours`.
_DARK = {
    "text": ("dde1e8", "14161b"),
    "title": ("9dcaf6", "14161b"),
    "key": ("d9c0f9", "14161b"),
    "rule": ("406386", "1b1e25"),
    "cursor": ("14161b", "dde1e8"),
    "hint": ("76787c", "1b1e25"),
    "status": ("e2e3e4", "242832"),
}
_LIGHT = {
    "text": ("1f2328", "fcfcfa"),
    "title": ("063e6e", "fcfcfa"),
    "key": ("522977", "fcfcfa"),
    "rule": ("83add1", "f2f2ee"),
    "cursor": ("eeefef", "5e6163"),
    "hint": ("91918e", "f2f2ee"),
    "status": ("1d1d1c", "e5e5df"),
}
_BOLD = {"title", "key"}


def depth_of(variables: Mapping[str, str]) -> int | None:
    """Return how many colours a terminal has, of 2**24, 256 and 1, as its environment says; None for any other number."""
    if "NO_COLOR" in variables:
        return 1
    if variables.get("COLORTERM", "").strip().lower() in {"truecolor", "24bit"}:
        return 1 << 24
    return 256 if variables.get("TERM", "").rpartition("-")[2] in {"256color", "kitty"} else None


def first_frame(columns: int, rows: int, *, dark: bool, depth: int) -> str:
    """Return what to write to an empty screen; empty where the screen is too small for a usual frame.

    Args:
        columns: of the terminal.
        rows: likewise.
        dark: whether its background is.
        depth: how many colours it has; see `depth_of`.
    """
    if columns < _LEAST[0] or rows < _LEAST[1]:
        return ""
    theme = _DARK if dark else _LIGHT

    def style(role: str) -> str:
        marks = ["0", *(["1"] if role in _BOLD else [])]
        if depth == 1:
            marks += ["7"] if role == "cursor" else []
        else:
            marks += [
                f"{at}8;{_colour(each, depth)}" for at, each in zip("34", theme[role], strict=True)
            ]
        return f"\x1b[{';'.join(marks)}m"

    def line(*parts: tuple[str, str]) -> str:
        gap = columns - sum(len(text) for _, text in parts)
        return "".join(style(role) + text for role, text in parts) + " " * gap

    keys = [each.partition(" ") for each in WELCOME.splitlines()]
    hint = _first_line(PLACEHOLDER, columns - 2)
    lines = [
        line(("text", "   "), ("title", "localspec"), ("text", "")),
        *(line(("text", "   "), ("key", key), ("text", gap + rest)) for key, gap, rest in keys),
        line(("text", "")),
        line(("rule", "─" * columns)),
        line(("hint", " "), ("cursor", hint[0]), ("hint", hint[1:])),
        line(("status", f" {STARTING}")),
    ]
    empty = [line(("text", ""))] * (rows - len(lines))
    return "\x1b[H" + "\r\n".join([*empty, *lines]) + "\x1b[0m"


def _first_line(text: str, width: int) -> str:
    """Return as many whole words as fit."""
    return text if len(text) <= width else text[: text.rindex(" ", 0, width + 1)]


def _colour(hexadecimal: str, depth: int) -> str:
    red, green, blue = rgb = tuple(bytes.fromhex(hexadecimal))
    return f"2;{red};{green};{blue}" if depth > 256 else f"5;{_of_256(rgb)}"


def _of_256(rgb: tuple[int, ...]) -> int:
    """Return the number of the nearest of 256 colours, as Rich finds it: greys by themselves, the rest in a cube of 6."""
    low, high = min(rgb) / 255, max(rgb) / 255
    light = (low + high) / 2
    saturation = (
        0.0 if low == high else (high - low) / (high + low if light <= 0.5 else 2 - high - low)
    )
    if saturation < 0.15:
        grey = round(25 * light)
        return {0: 16, 25: 231}.get(grey, 231 + grey)
    red, green, blue = (round(each / 95 if each < 95 else 1 + (each - 95) / 40) for each in rgb)
    return 16 + 36 * red + 6 * green + blue
