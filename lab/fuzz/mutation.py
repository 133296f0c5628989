"""Mutation without coverage, for the short form: the same inputs in every run, on every machine."""

import random
from collections.abc import Iterator, Sequence

from lab.fuzz.documents import changed

_DOCUMENTS = 0.4
"""Share of inputs in which JSON is changed as what it is."""
_WORDS = (
    b"\0", b"\xff" * 4, b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\x80", b"\r\n", b"[", b"{", b'"', b"\\u0000",
    b"\\ud800", b"-1", b"1e999", b"9" * 30, b"null", b"true", b"../", b"{{", b"{%", b"\xef\xbb\xbf", b",", b"=",
)  # fmt: skip


def mutants(seeds: Sequence[bytes], count: int, seed: int) -> Iterator[bytes]:
    """Yield the seeds, and then so many inputs made of them."""
    yield from seeds
    chance = random.Random(seed)
    for _ in range(count):
        seed_data = chance.choice(seeds)
        document = changed(seed_data, chance) if chance.random() < _DOCUMENTS else None
        if document is not None:
            yield document
            continue
        data = bytearray(seed_data)
        for _ in range(chance.randint(1, 6)):
            _change(data, chance, seeds)
        yield bytes(data)


def _change(data: bytearray, chance: random.Random, seeds: Sequence[bytes]) -> None:
    at = chance.randint(0, len(data))
    end = min(len(data), at + chance.choice((1, 1, 2, 8, 64)))
    match chance.randrange(6):
        case 0:
            del data[at:end]
        case 1:
            data[at:at] = data[at:end] * chance.choice((1, 2, 50))
        case 2:
            data[at:end] = chance.choice(_WORDS)
        case 3:
            data[at:end] = chance.randbytes(end - at)
        case 4:
            other = chance.choice(seeds)
            start = chance.randint(0, len(other))
            data[at:end] = other[start : start + chance.randint(0, 64)]
        case _ if at < len(data):
            data[at] ^= 1 << chance.randrange(8)
        case _:
            pass
