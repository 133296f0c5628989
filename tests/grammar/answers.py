"""Texts of a grammar by chance, and whether one is, asked of the automaton byte by byte."""

import json
from functools import cache
from random import Random
from typing import Any

import numpy as np

from localspec.grammar import Grammars
from localspec.grammar.automaton import GrammarAutomaton
from localspec.options import ReplyOptions

END = 256


class ByteVocabulary:
    """The bytes, an EOG, and any further tokens; the longest one that fits is taken first."""

    def __init__(self, *longer: str, more_eog: int = 0) -> None:
        first = END + 1 + more_eog
        self.eog = frozenset(range(END, first))
        self.longer = {text.encode(): first + index for index, text in enumerate(longer)}

    def pieces(self) -> list[bytes]:
        return [bytes([code]) for code in range(256)] + [b""] * len(self.eog) + [*self.longer]

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        assert not add_special
        assert not parse_special
        found, rest = list[int](), text.encode()
        while rest:
            piece = max(
                (each for each in self.longer if rest.startswith(each)), key=len, default=b""
            )
            found.append(self.longer[piece] if piece else rest[0])
            rest = rest[max(1, len(piece)) :]
        return found


_IDS = np.arange(END + 1)
_LONG, _LONGEST = 120, 2_000
_CLOSING, _WHITE, _PLAIN = frozenset(b'",}]'), frozenset(b" \t\r\n"), frozenset(range(0x21, 0x7F))


@cache
def _grammars() -> Grammars:
    return Grammars(ByteVocabulary())


def automaton(**options: Any) -> GrammarAutomaton:
    return _grammars()(ReplyOptions(**options))


def texts(count: int, **options: Any) -> list[str]:
    """Return so many texts by chance, without those that would be very long."""
    rule = automaton(**options)
    walks = (_walk(rule, Random(seed)) for seed in range(count))
    return [text.decode() for text in walks if text is not None]


def takes(text: str, **options: Any) -> bool:
    return passes(automaton(**options), text)


def passes(rule: GrammarAutomaton, text: str) -> bool:
    state = rule.start()
    for token in [*text.encode(), END]:
        if not rule.allows(state, np.array([token]))[0]:
            return False
        state = rule.step(state, token)
    return True


def takes_value(value: Any, schema: Any) -> bool:
    """Return whether the grammar of a schema takes a value, in the order in which it is given."""
    return takes(json.dumps(value), json_schema=schema)


def _walk(rule: GrammarAutomaton, chance: Random) -> bytes | None:
    """Return a text of a grammar; None where it is not whole after 2,000 bytes."""
    text, state = bytearray(), rule.start()
    while len(text) < _LONGEST:
        allowed = np.flatnonzero(rule.allows(state, _IDS)).tolist()
        assert allowed, f"nothing may follow {bytes(text)!r}"
        byte = _choice(allowed, len(text), chance)
        if byte == END:
            return bytes(text)
        state = rule.step(state, byte)
        text.append(byte)
    return None


def _choice(allowed: list[int], length: int, chance: Random) -> int:
    """Return one of these: the end and what leads to it the more often, the longer the text is."""
    if allowed[-1] == END and (len(allowed) == 1 or chance.random() < 0.5):
        return END
    inner = [each for each in allowed if each != END]
    for wanted, often in ((_CLOSING, 0.15 if length < _LONG else 0.75), (_PLAIN, 0.8)):
        some = [each for each in inner if each in wanted]
        if some and chance.random() < often:
            return chance.choice(some)
    some = [each for each in inner if each not in _WHITE]
    return chance.choice(some if some and chance.random() < 0.8 else inner)
