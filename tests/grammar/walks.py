"""Texts by chance of a grammar that says byte by byte what may follow."""

from collections.abc import Collection, Sequence
from random import Random
from typing import Protocol

END = 256
"""What stands for the end of a text, beside the 256 bytes."""
_LONG, _LONGEST = 120, 2_000
_CLOSING = frozenset(b'",}]')
_WHITE = frozenset(b" \t\r\n")
_PLAIN = frozenset(range(0x21, 0x7F))


class Bytes(Protocol):
    """A grammar over bytes, at some place in a text."""

    def may_follow(self) -> Collection[int]:
        """Return the bytes that may follow here, and `END` where the text may be whole."""
        ...

    def take(self, byte: int) -> None:
        """Go on behind a byte that may follow."""
        ...


def walk(grammar: Bytes, chance: Random) -> bytes | None:
    """Return a text of a grammar; None where it is not whole after 2,000 bytes.

    Raises:
        DeadEndError: nothing may follow.
    """
    text = bytearray()
    while len(text) < _LONGEST:
        allowed = sorted(grammar.may_follow())
        if not allowed:
            raise DeadEndError(bytes(text))
        byte = _choice(allowed, len(text), chance)
        if byte == END:
            return bytes(text)
        grammar.take(byte)
        text.append(byte)
    return None


def accepts(grammar: Bytes, text: bytes) -> bool:
    """Say whether a text is one of a grammar."""
    for byte in text:
        if byte not in grammar.may_follow():
            return False
        grammar.take(byte)
    return END in grammar.may_follow()


class DeadEndError(Exception):
    """Nothing may follow a text that was let through so far."""


def _choice(allowed: Sequence[int], length: int, chance: Random) -> int:
    """Return one of these: the end and what leads to it the more often, the longer the text is."""
    if allowed[-1] == END and (len(allowed) == 1 or chance.random() < 0.5):
        return END
    bytes_ = [each for each in allowed if each != END]
    for wanted, often in ((_CLOSING, 0.15 if length < _LONG else 0.75), (_PLAIN, 0.8)):
        some = [each for each in bytes_ if each in wanted]
        if some and chance.random() < often:
            return chance.choice(some)
    some = [each for each in bytes_ if each not in _WHITE]
    return chance.choice(some if some and chance.random() < 0.8 else bytes_)
