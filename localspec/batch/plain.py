"""plain: texts of a line as they may stand in a message. Whoever reads it has a terminal, which obeys some characters."""


def plain(text: str, kept: str = "") -> str:
    """Return a text with `?` for all that cannot be shown, but for the characters in `kept`."""
    return "".join(each if each.isprintable() or each in kept else "?" for each in text)


def plain_line(text: str) -> str:
    """Return a text as one line, white space as blanks."""
    return plain(" ".join(text.split()))
