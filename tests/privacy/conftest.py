"""The command line's machine without models and without a network."""

from tests.cli.conftest import bare_machine

__all__ = ["bare_machine"]
