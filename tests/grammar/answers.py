"""Texts of a grammar, and whether one is, asked of the automaton byte by byte."""

import json
from collections.abc import Collection
from functools import cache
from random import Random
from typing import Any

import numpy as np

from localspec.grammar import Grammars
from localspec.grammar.automaton import GrammarAutomaton
from localspec.options import ReplyOptions
from tests.grammar.byte_vocabulary import END, ByteVocabulary
from tests.grammar.walks import accepts, walk

_IDS = np.arange(END + 1)


class Walked:
    """An automaton at some place in a text; see `tests.grammar.walks.Bytes`."""

    def __init__(self, automaton: GrammarAutomaton) -> None:
        self._automaton, self._state = automaton, automaton.start()

    def may_follow(self) -> Collection[int]:
        return set(np.flatnonzero(self._automaton.allows(self._state, _IDS)).tolist())

    def take(self, byte: int) -> None:
        self._state = self._automaton.step(self._state, byte)


@cache
def _grammars() -> Grammars:
    return Grammars(ByteVocabulary())


def automaton(**said: Any) -> GrammarAutomaton:
    """Return what holds an answer to options, over bytes."""
    return _grammars()(ReplyOptions(**said))


def texts(count: int, **said: Any) -> list[str]:
    """Return so many texts by chance, without those that would be very long."""
    rule = automaton(**said)
    found = (walk(Walked(rule), Random(seed)) for seed in range(count))
    return [text.decode() for text in found if text is not None]


def takes(text: str, **said: Any) -> bool:
    """Say whether a text is one of a grammar."""
    return accepts(Walked(automaton(**said)), text.encode())


def takes_value(value: Any, schema: Any) -> bool:
    """Say whether the grammar of a schema takes a value, in the order in which it is given."""
    return takes(json.dumps(value), json_schema=schema)
