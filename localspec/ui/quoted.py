"""Texts of several lines between three double quotes, as Ollama's users type them."""

QUOTES = '"""'


def goes_on(text: str) -> bool:
    """Return whether a text begins with three double quotes that nothing has closed yet."""
    begun = text.lstrip()
    return begun.startswith(QUOTES) and QUOTES not in begun[len(QUOTES) :]


def unquoted(text: str) -> str:
    """Return what stands between three double quotes if they enclose all of a text, else the text."""
    inner = text.strip()
    if len(inner) < 2 * len(QUOTES) or not (inner.startswith(QUOTES) and inner.endswith(QUOTES)):
        return text
    return inner[len(QUOTES) : -len(QUOTES)].strip("\n")
