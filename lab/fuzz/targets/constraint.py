"""What may follow, along random texts of random grammars: our masks against a grammar sampler of llama.cpp's.

The one goes back and forth as drafts do; the other one walks ahead. They have to agree on SmolLM2's whole vocabulary, but for
what only we refuse: control tokens, what no UTF-8 can begin with, and other cuts of a text that is forced. Schemas have
no such reference; there, what is asked again has to be answered alike, and something may always follow.
"""

import ctypes
import os
import time
import weakref
from functools import cache
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import llama_cpp.llama_cpp as native
import numpy as np
from numpy.typing import NDArray

from lab.fuzz import random_grammars
from lab.fuzz.target import FoundError
from localspec.decoding.constraint import AnswerConstraint
from localspec.grammar import Grammars
from localspec.llama.backend import initialise
from localspec.llama.vocabulary import Vocabulary
from localspec.models.pull import pull
from localspec.options import ReplyOptions

MOST_S = 20.0
"""A text that can be read in many ways takes long, and is ended after a slow step; only hangs are found here."""
_SLOW_S = 0.2
_STEPS = 12
_SAMPLED = 400
_MOST_CHARS = 1500
_TOKEN_DATA = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])

# The first byte says what is drawn: a grammar, or a schema.
SEEDS = (
    *(b"G%d" % seed for seed in range(24)),
    *(b"S%d" % seed for seed in range(24)),
    *(b"s" + schema.encode() for schema in map(random_grammars.schema, map(Random, range(4)))),
)


@cache
def _model() -> Any:
    """Return a model of which only the vocabulary was read."""
    initialise()
    params = native.llama_model_default_params()
    params.vocab_only = True
    handle = native.llama_model_load_from_file(os.fsencode(_path()), params)
    vocabulary = Vocabulary(native.llama_model_get_vocab(handle))
    return SimpleNamespace(handle=handle, vocabulary=vocabulary)


def _path() -> Path:
    return pull("smollm2-135m")[0]


@cache
def _grammars() -> Grammars:
    return Grammars(_model().vocabulary)


@cache
def _pieces() -> list[bytes]:
    vocabulary = _model().vocabulary
    return [vocabulary.piece(token) for token in range(vocabulary.n_vocab)]


@cache
def _byte_ids() -> list[int]:
    return [token for token, piece in enumerate(_pieces()) if len(piece) == 1]


class _Reference:
    """llama.cpp's sampler, walking ahead, and nothing else. It is only safe with a grammar that is known to be sound."""

    def __init__(self, gbnf: str) -> None:
        vocab = native.llama_model_get_vocab(_model().handle)
        self._handle = native.llama_sampler_init_grammar(vocab, gbnf.encode(), b"root")
        if not self._handle:
            raise FoundError(f"llama.cpp refuses what was found sound: {gbnf!r}")
        weakref.finalize(self, native.llama_sampler_free, self._handle)
        self._text = b""

    def allows(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Say for each id whether llama.cpp lets it follow, and it is text."""
        data = np.zeros(ids.size, dtype=_TOKEN_DATA)
        data["id"] = ids
        pointer = ctypes.cast(data.ctypes.data, native.llama_token_data_p)
        array = native.llama_token_data_array(pointer, ids.size, -1, False)
        native.llama_sampler_apply(self._handle, ctypes.byref(array))
        found = np.asarray(data["logit"] == 0)
        for place in np.flatnonzero(found):
            found[place] = self._is_text(int(ids[place]))
        return found

    def step(self, token: int) -> None:
        native.llama_sampler_accept(self._handle, token)
        self._text += _pieces()[token]

    def _is_text(self, token: int) -> bool:
        pending = _pending(self._text)
        if token in _model().vocabulary.eog:
            return not pending
        piece = _pieces()[token]
        return bool(piece) and _begins(pending + piece)


def _pending(text: bytes) -> bytes:
    """Return what is left of a text where its last character is not whole."""
    for length in range(4):
        try:
            text[: len(text) - length].decode()
        except UnicodeDecodeError:
            continue
        return text[len(text) - length :]
    raise FoundError(f"what was let through is no UTF-8: {text!r}")


@cache
def _begins(text: bytes) -> bool:
    """Say whether some text begins so; the lowest and the highest bytes that may follow tell."""
    return any(_decodes(text + byte * count) for byte in (b"\x80", b"\xbf") for count in range(4))


def _decodes(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def run(data: bytes) -> None:
    kind, text = data[:1], data[1 : 1 + _MOST_CHARS].decode(errors="replace")
    if kind == b"G":
        gbnf = random_grammars.grammar(Random(text))
        walk(ReplyOptions(grammar=gbnf), _Reference(gbnf), Random(data))
    else:
        schema = random_grammars.schema(Random(text)) if kind == b"S" else text
        walk(ReplyOptions(json_schema=schema), None, Random(data))


def walk(options: ReplyOptions, reference: _Reference | None, chance: Random) -> None:
    """Draw a text, and compare what may follow at each of its tokens."""
    gbnf = options.grammar or str(options.json_schema)
    constraint = AnswerConstraint(_grammars()(options), 0)
    n_vocab, eog = _model().vocabulary.n_vocab, _model().vocabulary.eog
    everything = np.arange(n_vocab, dtype=np.int64)
    text: list[int] = []
    seen: list[tuple[NDArray[np.int64], NDArray[np.bool_]]] = []
    for step in range(_STEPS):
        began_s = time.thread_time()
        few = chance.sample(range(n_vocab), _SAMPLED)
        ids = np.array(sorted({*few, *_byte_ids(), *eog}), dtype=np.int64)
        if step == chance.randrange(_STEPS):
            ids = everything
        allowed = constraint.allows(text, ids)
        if reference is not None:
            theirs = reference.allows(ids)
            is_forced = len(constraint.forced(text)) > 0
            _compare(gbnf, text, ids, allowed, theirs & (allowed | (not is_forced)))
        seen.append((ids, allowed))
        _look_back(constraint, gbnf, text, seen, chance)
        if time.thread_time() - began_s > _SLOW_S:
            return
        may = everything[constraint.allows(text, everything)].tolist()
        if not may:
            raise FoundError(f"nothing may follow {_told(text)} in {gbnf!r}")
        chosen = max(chance.choices(may, k=3), key=lambda token: len(_pieces()[token]))
        if chosen in eog:
            return
        if reference is not None:
            reference.step(chosen)
        text.append(chosen)


def _look_back(
    constraint: AnswerConstraint[Any],
    gbnf: str,
    text: list[int],
    seen: list[tuple[NDArray[np.int64], NDArray[np.bool_]]],
    chance: Random,
) -> None:
    """Ask about an earlier place again, as after a rejected draft."""
    back = chance.randrange(len(seen))
    ids, before = seen[back]
    part = np.sort(np.array(chance.sample(range(ids.size), min(ids.size, 150))))
    _compare(gbnf, text[:back], ids[part], constraint.allows(text[:back], ids[part]), before[part])


def _compare(
    gbnf: str,
    text: list[int],
    ids: NDArray[np.int64],
    ours: NDArray[np.bool_],
    theirs: NDArray[np.bool_],
) -> None:
    for place in np.flatnonzero(ours != theirs):
        token = int(ids[place])
        if b"\0" in _pieces()[token]:
            continue  # llama.cpp reads a text up to its first NUL
        raise FoundError(
            f"after {_told(text)} we say {bool(ours[place])} of {_pieces()[token]!r} ({token}), "
            f"llama.cpp {bool(theirs[place])}: {gbnf!r}"
        )


def _told(text: list[int]) -> str:
    return repr(b"".join(_pieces()[token] for token in text))
