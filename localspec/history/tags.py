"""Tags: names that a user gives to conversations, to find them again."""

import re
from collections.abc import Sequence

from localspec.errors import UsageError

_TAG = re.compile(r"[\w.-]{1,40}")
_IN_QUERY = re.compile(r"(?:^|(?<=\s))(?:tag:|#)([\w.-]{1,40})(?=\s|$)")


def tags_of(text: str) -> tuple[Sequence[str], Sequence[str]]:
    """Return the tags that are to be added and those that are to be removed, which begin with a minus.

    Raises:
        UsageError: one is no tag.
    """
    added, removed = list[str](), list[str]()
    for word in text.replace(",", " ").split():
        name = word.removeprefix("-").removeprefix("#").lower()
        if not _TAG.fullmatch(name) or name.isdecimal():
            raise UsageError(
                f"{word[:40]!r} is no tag: use letters, digits, _, - and ., not digits alone"
            )
        (removed if word.startswith("-") else added).append(name)
    return added, removed


def split_query(query: str) -> tuple[str, list[str]]:
    """Return a query without its tags, which stand there as `tag:NAME` or `#NAME`, and these tags."""
    found = [each.lower() for each in _IN_QUERY.findall(query)]
    return " ".join(_IN_QUERY.sub(" ", query).split()) if found else query, found
