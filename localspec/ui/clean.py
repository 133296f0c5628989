"""Text that a terminal shows and never obeys. Every character from models and files passes here.

The screens use it twice: `clean` before text is laid out, so that widths are right, and `LineGuard`
(`localspec/ui/guard.py`) on every line on its way out, whatever widget it came from.
"""

_PICTURES = 0x2400  # ␀ ␁ … ␛: a control character is shown, as what it is

_SHOWN: dict[int, str | None] = {
    **{code: chr(_PICTURES + code) for code in range(32)},
    0x09: "    ",
    0x0A: "\n",
    0x0D: None,  # half of a Windows line end, which may be cut between two chunks
    0x7F: "\u2421",
    # C1 controls, what turns the direction of text round, and halves of characters
    **dict.fromkeys(
        (
            *range(0x80, 0xA0),
            *range(0x202A, 0x202F),
            *range(0x2066, 0x206A),
            *range(0xD800, 0xE000),
        ),
        "\ufffd",
    ),
    0x2028: "\n",
    0x2029: "\n",
}


def clean(text: str) -> str:
    """Return text with nothing in it that a terminal would obey; line ends stay."""
    return text.translate(_SHOWN)


def clean_line(text: str) -> str:
    """Return text as one line: for titles, names and messages."""
    return " ".join(clean(text).split("\n")).strip()


def clean_input(text: str) -> str:
    """Return a pasted text without what only a terminal would understand; tabs and line ends stay."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(each for each in text if each in "\t\n" or clean(each) == each)
