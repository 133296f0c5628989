"""Sentences: a text cut where sentences end, as it comes. Where it is cut depends on the text alone."""

import re

_LEAST, _MOST = 24, 400
"""Characters: shorter ones go with the next, longer ones are cut between words."""
_FULL_WIDTH = "\u3002\uff01\uff1f"  # a space does not follow them
_END = re.compile(rf"""[.!?…]["'»”\u2019)\]}}*_`]*\s|\n|[{_FULL_WIDTH}]""")
_LONGEST_END = 8


class Sentences:
    """Cuts one text. All that it returns, together, is the text."""

    def __init__(self) -> None:
        self._rest = ""

    def feed(self, text: str) -> list[str]:
        """Take more of the text; return the sentences that are whole now."""
        self._rest += text
        whole: list[str] = []
        while end := _end(self._rest):
            whole.append(self._rest[:end])
            self._rest = self._rest[end:]
        return whole

    def flush(self) -> str:
        """Return the rest, at the end of the text."""
        rest, self._rest = self._rest, ""
        return rest


def _end(text: str) -> int:
    """Return how many characters the first sentence has; 0 while its end is not there."""
    for found in _END.finditer(text, _LEAST - _LONGEST_END, _MOST):
        if found.end() >= _LEAST:
            return found.end()
    if len(text) < _MOST:
        return 0
    between = text.rfind(" ", _LEAST, _MOST)
    return _MOST if between < 0 else between + 1
