"""TokenTexts: what a grammar has to know of every token's text, as arrays."""

import codecs

import numpy as np
from numpy.typing import NDArray

from localspec.llama.vocabulary import Vocabulary

NO_BYTE = 256
_WIDTH = 32
"""Bytes of nearly all texts; a few hundred have more."""
_FREQUENT = 256
_UTF8 = codecs.getincrementaldecoder("utf-8")


class TokenTexts:
    """The texts of a vocabulary, read once: 152k of them take a tenth of a second.

    Args:
        vocabulary: whose; valid as long as that is.

    Attributes:
        eog: whether an id ends a generation, shape (n_vocab,).
        usable: whether an id stands for a text that an answer may hold: control tokens do not, nor
            does what no UTF-8 can begin with, shape (n_vocab,).
        goes_on: whether a text begins in the middle of a character, shape (n_vocab,).
        beginnings: of each text, first byte times 257 plus second, 256 for one that is not there, shape (n_vocab,).
        byte_ids: for each byte an id whose text is that byte alone, -1 where there is none, shape (256,).
        frequent: bytes that many texts begin with.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._piece = vocabulary.piece
        rows, lengths = vocabulary.all_pieces(_WIDTH)
        long = np.flatnonzero(lengths < 0)
        for token in long.tolist():
            rows[token] = np.frombuffer(self._piece(token)[:_WIDTH], dtype=np.uint8)
        n_vocab = lengths.size
        self.eog = np.zeros(n_vocab, dtype=np.bool_)
        self.eog[[token for token in vocabulary.eog if token < n_vocab]] = True
        self.usable = _are_texts(rows, lengths)
        self.usable[long] = [_is_text(self._piece(token)) for token in long.tolist()]
        self.usable &= ~self.eog
        first, second = rows[:, :2].astype(np.int64).T
        self.first_bytes = np.where(lengths == 0, NO_BYTE, first)
        second = np.where((lengths == 0) | (lengths == 1), NO_BYTE, second)
        self.beginnings = self.first_bytes * (NO_BYTE + 1) + second
        self.goes_on = (self.first_bytes >= 0x80) & (self.first_bytes < 0xC0)
        self.byte_ids = np.full(NO_BYTE, -1, dtype=np.int64)
        single = np.flatnonzero((lengths == 1) & ~self.eog)
        self.byte_ids[self.first_bytes[single]] = single
        spellable = np.flatnonzero(self.byte_ids >= 0)
        often = np.bincount(self.first_bytes, minlength=NO_BYTE)
        self.frequent = [int(byte) for byte in spellable if often[byte] >= _FREQUENT]

    def follows(self, pending: bytes, token: int) -> bool:
        """Say whether a text may follow the beginning of a character: whether both together are UTF-8 so far."""
        piece = self._piece(token)
        return bool(piece) and b"\0" not in piece and _begins_utf8(pending + piece)

    def pending(self, pending: bytes, token: int) -> bytes:
        """Return what is still the beginning of a character, after a token that may follow `pending`."""
        decoder = _UTF8(errors="strict")
        decoder.decode(pending + self._piece(token))
        return decoder.getstate()[0]


def _are_texts(rows: NDArray[np.uint8], lengths: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Say of each row whether it is a text, as `_is_text` does; of one without room for it, nothing that counts."""
    found: NDArray[np.bool_] = (lengths > 0) & (np.count_nonzero(rows, axis=1) == lengths)
    beyond_ascii = np.flatnonzero(found & (rows >= 0x80).any(axis=1))
    content, width = rows.tobytes(), rows.shape[1]
    for token, length in zip(beyond_ascii.tolist(), lengths[beyond_ascii].tolist(), strict=True):
        start = token * width
        found[token] = _begins_utf8(content[start : start + length])
    return found


def _is_text(piece: bytes) -> bool:
    # llama.cpp's grammars read a text up to its first NUL.
    return bool(piece) and b"\0" not in piece and _begins_utf8(piece)


def _begins_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        pass
    else:
        return True
    decoder = _UTF8(errors="strict")
    try:
        decoder.decode(text)
    except UnicodeDecodeError:
        return False
    # Python's decoder waits for the last byte of a surrogate before it refuses it: nothing could follow here.
    pending = decoder.getstate()[0]
    return pending[:1] != b"\xed" or pending[1:2] < b"\xa0"
