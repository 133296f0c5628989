"""One number for one tokenizer: files with the same fingerprint cut text alike and name it alike.

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

import hashlib
from collections.abc import Iterator, Mapping

import numpy as np

from localspec.models.tokenizer_header import TokenizerHeader


def fingerprint(tokenizer: TokenizerHeader) -> str:
    """Return the fingerprint of a tokenizer, 64 hexadecimal digits."""
    digest = hashlib.sha256()
    for name, content in _sections(tokenizer):
        digest.update(name.encode() + b"\0" + len(content).to_bytes(8, "little"))
        digest.update(content)
    return digest.hexdigest()


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
