"""LoopGuard: finds where a text goes round in circles, from its tokens alone, so that drafting changes nothing of it."""

_LONGEST = 128
_LEAST_REPEATED = 48
_TIMES = 3


class LoopGuard:
    """Watches a text grow.

    A loop is a cycle of up to 128 tokens that is said once and then three times more, and for 48 tokens more at least.
    """

    def __init__(self) -> None:
        self._tokens: list[int] = []
        # How many of the last tokens are each the same as the one that is so many before it.
        self._repeated = [0] * (_LONGEST + 1)

    def feed(self, token: int) -> bool:
        """Take the next token, and return whether it makes a loop whole."""
        tokens, repeated = self._tokens, self._repeated
        looped = False
        for cycle in range(1, min(_LONGEST, len(tokens)) + 1):
            if tokens[-cycle] == token:
                repeated[cycle] += 1
                looped = looped or repeated[cycle] >= max(_TIMES * cycle, _LEAST_REPEATED)
            else:
                repeated[cycle] = 0
        tokens.append(token)
        return looped
