"""What a GGUF header says about its tokenizer: keys, a fingerprint, and how much of its vocabulary another one has, too.

Knows the keys, not how to tokenize.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localspec.errors import ModelFileError
from localspec.models.gguf_encoding import StringArray, Value

_PREFIX = "tokenizer.ggml."


@dataclass(frozen=True, slots=True, eq=False)
class TokenizerHeader:
    """The tokenizer of a model file; the position in `tokens` is the token id.

    Args:
        model: the kind, in llama.cpp's words: `gpt2` (byte-level BPE), `llama` (SentencePiece), …
        pre: the pre-tokenizer, such as `qwen2`; None where an old file does not name it.
        tokens: the pieces, in the alphabet of the kind (`gpt2` writes a space as `Ġ`).
        types: llama.cpp's token type per id (1 normal, 3 control, 5 unused, 6 byte), or None.
        scores: SentencePiece scores per id, or None.
        merges: byte-pair merges, best first, or None.
        special_ids: `bos`, `eos`, `eot`, `unknown`, `padding`, … where the file names them.
        flags: `add_bos_token`, `add_eos_token`, `add_space_prefix`, … where the file names them.
    """

    model: str
    pre: str | None
    tokens: StringArray
    types: NDArray[np.generic] | None
    scores: NDArray[np.generic] | None
    merges: StringArray | None
    special_ids: Mapping[str, int]
    flags: Mapping[str, bool]

    @property
    def n_vocab(self) -> int:
        """How many tokens there are, padding included."""
        return len(self.tokens)

    def piece(self, token: int) -> str:
        """Return a token's piece as text for a message."""
        return self.tokens[token].decode("utf-8", errors="replace")


def tokenizer_header(name: str, metadata: Mapping[str, Value]) -> TokenizerHeader:
    """Pick the tokenizer out of a header's values.

    Args:
        name: what to call the file in messages.
        metadata: the values of the header, by key.

    Raises:
        ModelFileError: there is no tokenizer, or its parts contradict each other.
    """
    own = {
        key.removeprefix(_PREFIX): value
        for key, value in metadata.items()
        if key.startswith(_PREFIX)
    }
    tokens, merges = own.get("tokens"), own.get("merges")
    model, pre = own.get("model"), own.get("pre")
    if not isinstance(model, str) or not isinstance(tokens, StringArray):
        raise ModelFileError(f"{name} has no tokenizer: give a GGUF of a language model")
    if merges is not None and not isinstance(merges, StringArray):
        raise ModelFileError(f"{name} is damaged (merges are not text): download it again")
    return TokenizerHeader(
        model=model,
        pre=pre if isinstance(pre, str) else None,
        tokens=tokens,
        types=_per_token(name, own, "token_type", len(tokens)),
        scores=_per_token(name, own, "scores", len(tokens)),
        merges=merges,
        special_ids={
            key.removesuffix("_token_id"): value
            for key, value in own.items()
            if key.endswith("_token_id") and isinstance(value, int)
        },
        flags={key: v for key, v in own.items() if key.startswith("add_") and isinstance(v, bool)},
    )


def _per_token(
    name: str, own: Mapping[str, Value], key: str, n_vocab: int
) -> NDArray[np.generic] | None:
    value = own.get(key)
    if value is None:
        return None
    if not isinstance(value, np.ndarray) or len(value) != n_vocab:
        raise ModelFileError(
            f"{name} is damaged ({_PREFIX}{key} is not one number per token): download it again"
        )
    return value


def normal_tokens(tokenizer: TokenizerHeader) -> NDArray[np.bool_] | None:
    """Return for each id whether its file calls it normal, and names it as nothing else; None where it has no types."""
    if tokenizer.types is None:
        return None
    normal: NDArray[np.bool_] = np.asarray(tokenizer.types == _NORMAL)
    named = [each for each in tokenizer.special_ids.values() if 0 <= each < tokenizer.n_vocab]
    normal[named] = False
    return normal


def fingerprint(tokenizer: TokenizerHeader) -> str:
    """Return one number for one tokenizer: files with the same one cut text alike and name it alike.

    Fingerprint, version 1: the sha256 over these sections in this order, each as its name, a NUL, the
    length of its content (8 bytes, little-endian) and its content; a section that the file does not
    have is left out, so that absent and empty differ:

        localspec-tokenizer  the byte 1
        model, pre           UTF-8
        tokens, merges       every string as its length (8 bytes, little-endian) and its bytes
        types                32-bit integers, little-endian
        scores               32-bit floats, little-endian
        special              `name=id` lines, sorted
        flags                `name=0` or `name=1` lines, sorted

    Chat templates and weights are not part of it: files that differ in them have the same tokenizer.
    """
    digest = hashlib.sha256()
    for name, content in _sections(tokenizer):
        digest.update(name.encode() + b"\0" + len(content).to_bytes(8, "little"))
        digest.update(content)
    return digest.hexdigest()


def vocabulary_of(tokenizer: TokenizerHeader) -> str:
    """Return a short name for what ids mean, the same for files that differ in padding behind the last id, or in how text is cut."""
    types, used = tokenizer.types, tokenizer.n_vocab
    if types is not None:
        used = 1 + int(np.flatnonzero(np.append(True, types != _UNUSED))[-1] - 1)
    digest = hashlib.sha256(tokenizer.model.encode())
    for piece in tokenizer.tokens[:used]:
        digest.update(len(piece).to_bytes(4, "little") + piece)
    if types is not None:
        digest.update((types[:used] == _BYTE).tobytes())
    return f"{digest.hexdigest()[:24]}-{used}"


def _sections(tokenizer: TokenizerHeader) -> Iterator[tuple[str, bytes]]:
    yield "localspec-tokenizer", b"\x01"
    yield "model", tokenizer.model.encode("utf-8", errors="replace")
    if tokenizer.pre is not None:
        yield "pre", tokenizer.pre.encode("utf-8", errors="replace")
    yield "tokens", tokenizer.tokens.raw
    if tokenizer.merges is not None:
        yield "merges", tokenizer.merges.raw
    if tokenizer.types is not None:
        yield "types", tokenizer.types.astype(np.dtype("<i4")).tobytes()
    if tokenizer.scores is not None:
        yield "scores", tokenizer.scores.astype(np.dtype("<f4")).tobytes()
    yield "special", _lines(tokenizer.special_ids)
    yield "flags", _lines(tokenizer.flags)


def _lines(named: Mapping[str, int]) -> bytes:
    text = "\n".join(f"{name}={int(value)}" for name, value in sorted(named.items()))
    return text.encode("utf-8", errors="replace")


_WITHOUT_TEXT = frozenset((2, 3, 5))  # llama.cpp's token types: unknown, control, unused
_NORMAL, _USER_DEFINED, _UNUSED, _BYTE = 1, 4, 5, 6


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
