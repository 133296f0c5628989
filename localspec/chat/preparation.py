"""Preparation: the rules of a reply are compiled beside the passes of others, since a schema may take long, or never end."""

import threading
from collections.abc import Callable

from localspec.chat.answer_constraint import ReplyRules
from localspec.errors import UsageError


class Preparation:
    """Makes the rules of a reply in a thread.

    Args:
        make: returns them.
    """

    def __init__(self, make: Callable[[], ReplyRules]) -> None:
        self._make = make
        self._rules: ReplyRules | None = None
        self._error: Exception | None = None
        self._ended = threading.Event()
        # A program that ends does not wait for it.
        threading.Thread(target=self._run, name="rules of a reply", daemon=True).start()

    @property
    def ended(self) -> bool:
        """Whether there are rules, or an error."""
        return self._ended.is_set()

    def wait(self, most_s: float) -> None:
        """Wait until it has ended, but not for longer."""
        self._ended.wait(most_s)

    def rules(self) -> ReplyRules:
        """Return the rules.

        Raises:
            UsageError: there are none yet, since the request was cancelled; or whatever making them has raised.
        """
        if self._error is not None:
            raise self._error
        if self._rules is None:
            raise UsageError("the request was cancelled")
        return self._rules

    def _run(self) -> None:
        try:
            self._rules = self._make()
        except Exception as error:  # whatever it is, the request gets it
            self._error = error
        self._ended.set()
