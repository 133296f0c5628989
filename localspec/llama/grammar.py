"""NativeGrammar: a GBNF grammar as an automaton over a vocabulary, by llama.cpp's grammar sampler.

llama.cpp ends the process where it is told to accept what its grammar does not allow, so nothing is
accepted that it was not asked about before.
"""

import ctypes
import re
import time
import weakref
from dataclasses import dataclass
from functools import cached_property

import llama_cpp.llama_cpp as native
import numpy as np
from numpy.typing import NDArray

from localspec.errors import PassFailed, UsageError
from localspec.llama.model import LlamaModel
from localspec.llama.token_texts import NO_BYTE, TokenTexts

_MANY = 200
"""Ids from which on it pays to ask first which bytes may follow at all."""
_ASCII = 0x80
_FEW = 12
"""Frequent first bytes up to which second ones are asked about, too."""
_SLOW_S = 10.0
_CLASSES_OF_ALL_BUT = re.compile(r"\[\^((?:\\.|[^\]\\])*)")
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]|\\u|\\U|\\x[89a-fA-F]")
_TOKEN_DATA = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class _Sampler:
    """One of llama.cpp's grammar samplers; freed with its owner."""

    __slots__ = ("__weakref__", "handle")

    def __init__(self, handle: int) -> None:
        self.handle = handle
        weakref.finalize(self, native.llama_sampler_free, handle)


@dataclass(slots=True, eq=False)
class GrammarState:
    """Where an answer is in the grammar.

    Args:
        sampler: llama.cpp's.
        pending: the bytes of a character that is not whole yet.
        ended: whether an EOG was the last token.
        beginnings: which two bytes a text may begin with here; None until somebody asks.
    """

    sampler: _Sampler
    pending: bytes = b""
    ended: bool = False
    beginnings: NDArray[np.bool_] | None = None


class NativeGrammar:
    """What texts a grammar allows, token by token; see `Automaton`.

    EOG may follow exactly where the grammar may end. Control tokens never may, nor what is no UTF-8.

    Args:
        model: whose vocabulary spells the texts.
        texts: of that vocabulary.
        gbnf: a grammar that was found sound.

    Raises:
        UsageError: llama.cpp refuses the grammar.
    """

    def __init__(self, model: LlamaModel, texts: TokenTexts, gbnf: str) -> None:
        self._model = model
        self._texts = texts
        self._bytes = np.flatnonzero(texts.byte_ids >= 0)
        # Where a character is excepted, llama.cpp refuses the beginning of every one that begins as it does.
        excepted = _CLASSES_OF_ALL_BUT.findall(gbnf)
        self._by_ascii_only = any(_BEYOND_ASCII.search(each) for each in excepted)
        vocab = native.llama_model_get_vocab(model.handle)
        handle = native.llama_sampler_init_grammar(vocab, gbnf.encode(), b"root")
        if not handle:
            raise UsageError("llama.cpp refuses the grammar: simplify it, or report this")
        self._slow_calls = 0
        self._start = GrammarState(_Sampler(handle))

    def start(self) -> GrammarState:
        """Return the state before the first token."""
        return self._start

    def step(self, state: GrammarState, token: int) -> GrammarState:
        """Return the state after a token that `allows` lets follow."""
        if state.ended or self._texts.eog[token]:
            return GrammarState(state.sampler, ended=True)
        self._require_open()
        started = time.monotonic()
        sampler = _Sampler(native.llama_sampler_clone(state.sampler.handle))
        native.llama_sampler_accept(sampler.handle, token)
        self._require_quick(started)
        return GrammarState(sampler, self._texts.pending(state.pending, token))

    def allows(self, state: GrammarState, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Say for each of `ids`, shape (n,), whether it may follow."""
        texts = self._texts
        if state.ended:
            return np.ones(ids.size, dtype=np.bool_)  # whatever follows an end is cut
        # Where a character is not whole yet, what completes it is no text by itself.
        asked = texts.goes_on[ids] if state.pending else texts.usable[ids]
        if ids.size >= _MANY:
            asked &= self._beginnings_allowed(state)[texts.beginnings[ids]]
        if not state.pending:
            asked |= texts.eog[ids]
        places = np.flatnonzero(asked)
        allowed = np.zeros(ids.size, dtype=np.bool_)
        allowed[places] = self._asked(state, ids[places])
        if state.pending:
            for place in np.flatnonzero(allowed):
                allowed[place] = texts.follows(state.pending, int(ids[place]))
        return allowed

    def _beginnings_allowed(self, state: GrammarState) -> NDArray[np.bool_]:
        """Return which two bytes a text may begin with, shape (257 * 257,): as far as single bytes tell."""
        if state.beginnings is None:
            first = self._bytes_allowed(state)
            beginnings = np.repeat(first[:, np.newaxis], NO_BYTE + 1, axis=1)
            frequent = [
                byte
                for byte in self._texts.frequent
                if first[byte]
                and self._texts.follows(state.pending, int(self._texts.byte_ids[byte]))
            ]
            # Where nearly every byte may follow, as within a string, the second ones tell no more.
            for byte in frequent if len(frequent) <= _FEW else ():
                after = self.step(state, int(self._texts.byte_ids[byte]))
                beginnings[byte, :NO_BYTE] = self._bytes_allowed(after)[:NO_BYTE]
            if self._by_ascii_only:
                beginnings[_ASCII:NO_BYTE] = beginnings[first, _ASCII:NO_BYTE] = True
            state.beginnings = beginnings.ravel()
        return state.beginnings

    def _bytes_allowed(self, state: GrammarState) -> NDArray[np.bool_]:
        """Return which byte may come next, shape (257,); bytes that no token spells alone may."""
        allowed = np.ones(NO_BYTE + 1, dtype=np.bool_)
        allowed[self._bytes] = self._asked(state, self._texts.byte_ids[self._bytes])
        return allowed

    def _asked(self, state: GrammarState, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Ask llama.cpp about some ids."""
        if ids.size == 0:
            return np.zeros(0, dtype=np.bool_)
        self._require_open()
        started = time.monotonic()
        data = np.zeros(ids.size, dtype=_TOKEN_DATA)
        data["id"] = ids
        array = native.llama_token_data_array(
            ctypes.cast(data.ctypes.data, native.llama_token_data_p), ids.size, -1, False
        )
        native.llama_sampler_apply(state.sampler.handle, ctypes.byref(array))
        self._require_quick(started)
        return np.asarray(data["logit"] == 0)

    def _require_quick(self, started: float) -> None:
        """Fail where a grammar has so many readings of one text that it would soon take for ever.

        Not at the first slow call: the process may have been stopped for a while.
        """
        self._slow_calls = self._slow_calls + 1 if time.monotonic() - started > _SLOW_S else 0
        if self._slow_calls > 1:
            raise PassFailed(
                f"the grammar took more than {_SLOW_S:.0f} s for one token, twice: the same text can be read in too "
                "many ways; give its alternatives different beginnings"
            )

    def _require_open(self) -> None:
        assert self._model.handle, "raises where the model was closed"  # noqa: S101


class Grammars:
    """Makes automata of grammars for one model.

    Args:
        model: whose vocabulary spells the texts.
    """

    def __init__(self, model: LlamaModel) -> None:
        self._model = model

    @cached_property
    def _texts(self) -> TokenTexts:
        return TokenTexts(self._model.vocabulary)

    def __call__(self, gbnf: str) -> NativeGrammar:
        """Return the automaton of a grammar that was found sound; the first one reads the vocabulary.

        Raises:
            UsageError: llama.cpp refuses the grammar.
        """
        return NativeGrammar(self._model, self._texts, gbnf)
