"""TokenTexts: what a grammar has to know of every token's text, as arrays."""

import codecs

import numpy as np

from localspec.llama.vocabulary import Vocabulary

NO_BYTE = 256
_FREQUENT = 256
_UTF8 = codecs.getincrementaldecoder("utf-8")


class TokenTexts:
    """The texts of a vocabulary, read once: 152k of them take a tenth of a second.

    Args:
        vocabulary: whose.

    Attributes:
        pieces: the texts, by id; b"" of control tokens.
        eog: whether an id ends a generation, shape (n_vocab,).
        usable: whether an id stands for a text that an answer may hold: control tokens do not, nor
            does what no UTF-8 can begin with, shape (n_vocab,).
        goes_on: whether a text begins in the middle of a character, shape (n_vocab,).
        beginnings: of each text, first byte times 257 plus second, 256 for one that is not there, shape (n_vocab,).
        byte_ids: for each byte an id whose text is that byte alone, -1 where there is none, shape (256,).
        frequent: bytes that many texts begin with.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.pieces = vocabulary.all_pieces()
        n_vocab = len(self.pieces)
        self.eog = np.zeros(n_vocab, dtype=np.bool_)
        self.eog[[token for token in vocabulary.eog if token < n_vocab]] = True
        self.usable = np.array([_is_text(piece) for piece in self.pieces], dtype=np.bool_)
        self.usable &= ~self.eog
        first = [piece[0] if piece else NO_BYTE for piece in self.pieces]
        second = [piece[1] if len(piece) > 1 else NO_BYTE for piece in self.pieces]
        self.first_bytes = np.array(first, dtype=np.int64)
        self.beginnings = self.first_bytes * (NO_BYTE + 1) + np.array(second, dtype=np.int64)
        self.goes_on = (self.first_bytes >= 0x80) & (self.first_bytes < 0xC0)
        self.byte_ids = np.full(NO_BYTE, -1, dtype=np.int64)
        for token, piece in enumerate(self.pieces):
            if len(piece) == 1 and not self.eog[token]:
                self.byte_ids[piece[0]] = token
        spellable = np.flatnonzero(self.byte_ids >= 0)
        often = np.bincount(self.first_bytes, minlength=NO_BYTE)
        self.frequent = [int(byte) for byte in spellable if often[byte] >= _FREQUENT]

    def follows(self, pending: bytes, token: int) -> bool:
        """Say whether a text may follow the beginning of a character: whether both together are UTF-8 so far."""
        piece = self.pieces[token]
        return bool(piece) and b"\0" not in piece and _begins_utf8(pending + piece)

    def pending(self, pending: bytes, token: int) -> bytes:
        """Return what is still the beginning of a character, after a token that may follow `pending`."""
        decoder = _UTF8(errors="strict")
        decoder.decode(pending + self.pieces[token])
        return decoder.getstate()[0]


def _is_text(piece: bytes) -> bool:
    # llama.cpp's grammars read a text up to its first NUL.
    return bool(piece) and b"\0" not in piece and _begins_utf8(piece)


def _begins_utf8(text: bytes) -> bool:
    if text.isascii():
        return True
    decoder = _UTF8(errors="strict")
    try:
        decoder.decode(text)
    except UnicodeDecodeError:
        return False
    # Python's decoder waits for the last byte of a surrogate before it refuses it: nothing could follow here.
    pending = decoder.getstate()[0]
    return pending[:1] != b"\xed" or pending[1:2] < b"\xa0"
