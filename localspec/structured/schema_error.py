"""Where in a JSON schema something is, and the error that says so."""

from localspec.errors import UsageError

_LONGEST = 300


def schema_error(path: str, what: str) -> UsageError:
    """Return the error about a place in a schema, on one line.

    Args:
        path: JSON pointer to it, "" for the whole.
        what: is wrong there, and what to do.
    """
    text = " ".join(what.split())
    shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    where = path if len(path) <= _LONGEST else f"{path[:_LONGEST]}…"
    line = f"the JSON schema cannot be kept at {where or 'its root'}: {shown}"
    # A schema may come from anywhere, and a terminal obeys some characters.
    return UsageError("".join(each if each.isprintable() else "?" for each in line))


def member(path: str, name: str | int) -> str:
    """Return the pointer to a member of what `path` points to."""
    return f"{path}/{str(name).replace('~', '~0').replace('/', '~1')}"
