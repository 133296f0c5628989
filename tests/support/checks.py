"""Checks that stand in rows of tables: a text by what is in it, and a call by the word with which it is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from localspec.errors import UsageError

T = TypeVar("T")


def there(value: T | None) -> T:
    """Return a value that must be there."""
    assert value is not None
    return value


def on_disk(folder: Path) -> bytes:
    """Return every byte of every file below a folder."""
    return b"".join(each.read_bytes() for each in sorted(folder.rglob("*")) if each.is_file())


def fits(text: str, wanted: str | dict[str, int]) -> None:
    """See that a text is as wanted: whole, or by how often it has others."""
    if isinstance(wanted, str):
        assert text == wanted
    else:
        assert {each: text.count(each) for each in wanted} == wanted, text


def refuses(words: str, call: Callable[..., object], *arguments: object, **named: object) -> None:
    """See that a call is refused in one line with these words."""
    with pytest.raises(UsageError, match=words) as caught:
        call(*arguments, **named)
    assert "\n" not in str(caught.value)
