"""Other programs' packages, imported when a test asks them for something: two of them take seconds."""

from importlib import import_module
from typing import Any


class Package:
    """A package that is not imported yet.

    Args:
        name: of the package.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        """Return what the package has of this name; pytest, which looks for marks, finds none."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(import_module(self._name), name)
