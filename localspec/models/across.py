"""Across vocabularies: how much of a draft model's vocabulary a target has, too, by other ids.

Judged by headers: a token is shared where both spell the same bytes with one token each.
"""

from collections.abc import Callable, Iterator

from localspec.models.tokenizer import TokenizerHeader

_WITHOUT_TEXT = frozenset((2, 3, 5))  # llama.cpp's token types: unknown, control, unused
_USER_DEFINED, _BYTE = 4, 6


def shared_percent(target: TokenizerHeader, draft: TokenizerHeader) -> float:
    """Return how many of the draft model's tokens the target has with the same bytes, in percent.

    0 for kinds of tokenizers whose alphabet is not known here.
    """
    ours = set(_contents(target))
    theirs = list(_contents(draft))
    return 100 * sum(each in ours for each in theirs) / len(theirs) if theirs and ours else 0.0


def _contents(tokenizer: TokenizerHeader) -> Iterator[bytes]:
    """Yield the bytes of every token that stands for some."""
    read = _ALPHABETS.get(tokenizer.model)
    if read is None:
        return
    types = tokenizer.types
    kinds = [1] * tokenizer.n_vocab if types is None else types.tolist()
    for piece, kind in zip(tokenizer.tokens, kinds, strict=True):
        if kind == _USER_DEFINED:
            yield piece
        elif kind == _BYTE:
            yield _byte(piece)
        elif kind not in _WITHOUT_TEXT:
            yield read(piece)


def _byte(piece: bytes) -> bytes:
    """Return the byte that `<0x0A>` stands for."""
    try:
        return bytes([int(piece[1:-1], 16)])
    except ValueError:
        return piece


def _in_words(piece: bytes) -> bytes:
    return piece.replace("\u2581".encode(), b" ")


def _byte_letters() -> dict[int, int]:
    """Return the byte of each letter of byte-level BPE: printable ones are their own, the others begin at 256.

    Source: `bytes_to_unicode` of GPT-2's `encoder.py`, Radford et al. 2019.
    """
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in own]
    return {byte: byte for byte in own} | {0x100 + at: byte for at, byte in enumerate(others)}


_LETTERS = _byte_letters()


def _byte_level(piece: bytes) -> bytes:
    try:
        return piece.decode().translate(_LETTERS).encode("latin-1")
    except UnicodeError:
        return piece  # not of that alphabet


_ALPHABETS: dict[str, Callable[[bytes], bytes]] = {
    "gpt2": _byte_level,
    "llama": _in_words,
    "gemma4": _in_words,
    "t5": _in_words,
}
