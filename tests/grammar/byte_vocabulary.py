"""Small vocabularies: of the 256 bytes, and with some longer tokens."""

END = 256


class ByteVocabulary:
    """The bytes, an EOG, and any further tokens; the longest one that fits is taken first."""

    def __init__(self, *longer: str, more_eog: int = 0) -> None:
        first = END + 1 + more_eog
        self.eog = frozenset(range(END, first))
        self.longer = {text.encode(): first + index for index, text in enumerate(longer)}

    def pieces(self) -> list[bytes]:
        return [bytes([code]) for code in range(256)] + [b""] * len(self.eog) + [*self.longer]

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        assert not add_special
        assert not parse_special
        found, rest = list[int](), text.encode()
        while rest:
            piece = max(
                (each for each in self.longer if rest.startswith(each)), key=len, default=b""
            )
            found.append(self.longer[piece] if piece else rest[0])
            rest = rest[max(1, len(piece)) :]
        return found
