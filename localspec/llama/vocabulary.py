"""Vocabulary: text to token ids and back, as the model's own file says."""

import ctypes
import re
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.llama.native import native

_FIM = ("pre", "suf", "mid", "rep", "sep")
_NORMAL = 1 << 2  # LLAMA_TOKEN_ATTR_NORMAL
_WIDTH = 32
"""Bytes of nearly all tokens; a few hundred have more."""
_CONTROL_OR_USER_DEFINED = (1 << 3) | (1 << 4)  # LLAMA_TOKEN_ATTR_CONTROL, _USER_DEFINED


class Vocabulary:
    """The tokenizer of a loaded model. Valid as long as the model is.

    llama.cpp takes some tokens for control tokens, and for ends, by their text alone: `</s>` of Qwen2, which its file calls
    normal. Such a token is a text like any other here, unless the file names it, or its chat template writes it.

    Args:
        handle: llama.cpp's vocabulary of the model.
        normal: which ids the file calls normal, and no end; None where it does not say.
        template: the file's chat template.
    """

    def __init__(
        self, handle: int, normal: NDArray[np.bool_] | None = None, template: str | None = None
    ) -> None:
        self._handle = handle
        self._pieces: dict[tuple[int, bool], bytes] = {}
        self.n_vocab: int = native.llama_vocab_n_tokens(handle)
        self.bos_id = _id_or_none(native.llama_vocab_bos(handle))
        self.eos_id = _id_or_none(native.llama_vocab_eos(handle))
        # What a model without an encoder reads in place of a picture.
        self.placeholder = max(0, native.llama_vocab_nl(handle))
        self.add_bos = bool(native.llama_vocab_get_add_bos(handle))
        # One walk over the vocabulary, at load: each id needs a native call, 152k of them 40 ms.
        attributes = native.llama_vocab_get_attr
        # Of a file without one, llama.cpp aborts the process if it is asked.
        n_named = self.n_vocab if native.llama_vocab_type(handle) else 0
        unusual = {
            token: kind
            for token in range(n_named)
            if (kind := attributes(handle, token)) != _NORMAL
        }
        named = {native.llama_vocab_eos(handle), native.llama_vocab_eot(handle)} - {-1}
        special = {
            token: text
            for token, kind in unusual.items()
            if kind & _CONTROL_OR_USER_DEFINED and (text := self.text(token))
        }
        self._ordinary = {
            token: text
            for token, text in special.items()
            if normal is not None and normal[token] and text not in (template or "")
        }
        self.eog = frozenset(
            token
            for token in {*unusual, *named} - self._ordinary.keys()
            if native.llama_vocab_is_eog(handle, token)
        )
        self._special_texts = frozenset(
            text for token, text in special.items() if token not in self._ordinary
        )
        self._special: re.Pattern[str] | None = None

    def suppressed(self) -> tuple[int, ...]:
        """Return the ids that the model's file forbids to generate; most files forbid none."""
        count = ctypes.c_int32(0)
        ids = native.llama_vocab_get_suppress_tokens(self._handle, ctypes.byref(count))
        return tuple(ids[: count.value]) if count.value else ()

    def fim(self) -> dict[str, int]:
        """Return the tokens for filling in the middle, as far as there are such: pre, suf, mid, rep, sep."""
        ids = {name: getattr(native, f"llama_vocab_fim_{name}")(self._handle) for name in _FIM}
        return {name: token for name, token in ids.items() if token >= 0}

    def around_pairs(self) -> tuple[list[int], list[int], list[int]]:
        """Return what the file wants before, between and after two texts that are read together."""
        handle = self._handle
        sep = native.llama_vocab_sep(handle)
        ends = [sep if self.eos_id is None else self.eos_id]
        ends = ends if native.llama_vocab_get_add_eos(handle) else []
        between = [*ends, *([sep] if native.llama_vocab_get_add_sep(handle) else [])]
        return [self.bos_id] if self.add_bos and self.bos_id is not None else [], between, ends

    @property
    def bos_text(self) -> str:
        """Text of the token that begins a sequence; empty when there is none."""
        return "" if self.bos_id is None else self.text(self.bos_id)

    @property
    def eos_text(self) -> str:
        """Text of the token that ends a sequence; empty when there is none."""
        return "" if self.eos_id is None else self.text(self.eos_id)

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Return the ids of a text.

        Args:
            text: any text; a NUL in it is text like any other.
            add_special: add what the model's file wants around a text (a BOS, mostly).
            parse_special: let the texts of control tokens become these tokens.
        """
        if parse_special and any(each in text for each in self._ordinary.values()):
            return self._tokenize_apart(text, add_special=add_special)
        encoded = text.encode("utf-8", errors="replace")
        # Every token but added ones takes at least one byte, so that one call nearly always does.
        room = len(encoded) + 8
        while True:
            ids = (ctypes.c_int32 * room)()
            count = native.llama_tokenize(
                self._handle, encoded, len(encoded), ids, room, add_special, parse_special
            )
            if count >= 0:
                return list(ids[:count])
            room = -count

    def _tokenize_apart(self, text: str, *, add_special: bool) -> list[int]:
        """Return the ids of a text with ordinary tokens in it that llama.cpp would parse: special texts one by one, and what is between."""
        if self._special is None:
            longest_first = sorted(self._special_texts, key=len, reverse=True)
            self._special = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        ids, at = list[int](), 0
        for special in (*self._special.finditer(text), None):
            between = text[at : None if special is None else special.start()]
            if between or not at:
                first = add_special and not ids
                ids += self.tokenize(between, add_special=first, parse_special=False)
            if special is not None:
                ids += self.tokenize(special[0], add_special=False, parse_special=True)
                at = special.end()
        return ids

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """Return the bytes that a token stands for; control tokens are empty unless `special`."""
        known = self._pieces.get((token, special))
        if known is None:
            known = self._pieces[token, special] = self._read_piece(token, special)
        return known

    def pieces(self) -> list[bytes]:
        """Return the bytes of every token, as `piece` does, by id; 152k of them take a seventh of a second."""
        n_vocab = self.n_vocab
        rows = np.zeros((n_vocab, _WIDTH), dtype=np.uint8)
        start = rows.ctypes.data
        counts = map(
            _piece_at(native.llama_token_to_piece),
            repeat(self._handle),
            range(n_vocab),
            range(start, start + rows.size, _WIDTH),
            repeat(_WIDTH),
            repeat(0),
            repeat(False),
        )
        lengths, content = list(counts), rows.tobytes()
        return [
            # Where there is no room, llama.cpp says so by a negative number.
            self.piece(token)
            if length < 0 or token in self._ordinary
            else content[token * _WIDTH : token * _WIDTH + length]
            for token, length in enumerate(lengths)
        ]

    def _read_piece(self, token: int, special: bool) -> bytes:
        special = special or token in self._ordinary
        room = 64 if token >= 0 else 0  # a picture's has no text
        while room:
            buffer = ctypes.create_string_buffer(room)
            count = native.llama_token_to_piece(self._handle, token, buffer, room, 0, special)
            if count >= 0:
                return buffer.raw[:count]
            room = -count
        return b""

    def text(self, token: int) -> str:
        """Return the text of a token as its file writes it, control tokens included."""
        raw = native.llama_vocab_get_text(self._handle, token)
        return "" if raw is None else raw.decode("utf-8", errors="replace")

    def special_texts(self) -> frozenset[str]:
        """Return the texts that become one token wherever `parse_special` is set."""
        return self._special_texts


def _piece_at(function: Any) -> Any:
    """Return llama.cpp's function for a piece as one that takes an address for its buffer.

    It keeps the interpreter's lock: given up and taken again at each of 152k calls, it would let a busy
    thread have its turn as often.
    """
    number, address = ctypes.c_int32, ctypes.c_void_p
    prototype = ctypes.PYFUNCTYPE(number, address, number, address, number, number, ctypes.c_bool)
    return prototype(ctypes.cast(function, address).value or 0)


def _id_or_none(token: int) -> int | None:
    return token if token >= 0 else None
