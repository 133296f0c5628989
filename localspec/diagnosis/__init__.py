"""Examines a machine: facts, and which of them are broken. Changes nothing and reveals no secret."""

from typing import Literal, NamedTuple

State = Literal["ok", "note", "warning", "broken"]


class Fact(NamedTuple):
    """One thing about this machine.

    Args:
        name: of the thing.
        value: in words.
        state: `note` is worth knowing; with a `warning`, such as no network, something does not work; `broken` needs mending.
    """

    name: str
    value: str
    state: State = "ok"
