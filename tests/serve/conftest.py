"""The machine without models is the command line's."""

from tests.cli.conftest import bare_machine

__all__ = ["bare_machine"]
