"""Bytes of tokens become text, a whole character at a time. Knows no tokens, only their bytes."""

import codecs


class Detokenizer:
    """An incremental UTF-8 decoder: a character that spans tokens appears with its last byte.

    Bytes that are no UTF-8 become U+FFFD, one for each maximal broken sequence, wherever the chunks were cut.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, piece: bytes) -> str:
        """Return the text that `piece` completes, which may be empty."""
        return self._decoder.decode(piece)

    def flush(self) -> str:
        """Return U+FFFD for a character that never became whole, else nothing; then start afresh."""
        return self._decoder.decode(b"", final=True)
