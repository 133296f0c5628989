"""What is read of all texts at once is what each text says alone."""

import codecs

import numpy as np
import pytest

from localspec.llama.model import LlamaModel
from localspec.llama.token_texts import NO_BYTE, TokenTexts

pytestmark = pytest.mark.weights


def begins_utf8(piece: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")(errors="strict").decode(piece)
    except UnicodeDecodeError:
        return False
    return piece[:1] != b"\xed" or piece[1:2] < b"\xa0"


def test_every_token_is_what_its_piece_says(smollm2: LlamaModel) -> None:
    vocabulary = smollm2.vocabulary
    pieces = [vocabulary.piece(token) for token in range(vocabulary.n_vocab)]
    assert max(map(len, pieces)) > 32, "some have more bytes than there is room for at first"
    texts = TokenTexts(vocabulary)
    usable = [
        bool(piece)
        and b"\0" not in piece
        and begins_utf8(piece)
        and not texts.eog[token]
        for token, piece in enumerate(pieces)
    ]  # fmt: skip
    assert np.array_equal(texts.usable, usable)
    assert 0 < sum(usable) < len(usable)
    padded = [(*piece[:2], NO_BYTE, NO_BYTE) for piece in pieces]
    assert texts.beginnings.tolist() == [each[0] * (NO_BYTE + 1) + each[1] for each in padded]
    assert texts.first_bytes.tolist() == [each[0] for each in padded]
    assert texts.goes_on.tolist() == [0x80 <= each[0] < 0xC0 for each in padded]
    spelled = {piece[0]: token for token, piece in enumerate(pieces) if len(piece) == 1}
    assert {int(b): int(texts.byte_ids[b]) for b in np.flatnonzero(texts.byte_ids >= 0)} == spelled
    assert set(np.flatnonzero(texts.eog)) == set(vocabulary.eog)
