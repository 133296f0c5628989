"""A vocabulary of the 256 bytes and an EOG."""

END = 256


class ByteVocabulary:
    eog = frozenset({END})

    def pieces(self) -> list[bytes]:
        return [bytes([code]) for code in range(256)] + [b""]

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        return list(text.encode())
