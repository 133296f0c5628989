"""Bugs to plant: see `tests.decoding.planting`."""

from typing import NamedTuple


class Bug(NamedTuple):
    """A function, the source text that must occur in it exactly once, and what takes its place."""

    function: object
    right: str
    wrong: str
