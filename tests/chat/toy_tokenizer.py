import re
from collections.abc import Collection
from dataclasses import dataclass

CONTROL = ("<s>", "</s>", "<|im_start|>", "<|im_end|>", "[THINK]", "[/THINK]")
USER_DEFINED = ("<think>", "</think>", "<table>", "\n\n")
WORDS = ("hello", "world", "user", "assistant")
FIRST_WORD = len(CONTROL) + len(USER_DEFINED)
FIRST_BYTE = 100


@dataclass(frozen=True)
class ToyTokenizer:
    """Control tokens, user-defined tokens, a few words and all bytes; with llama.cpp's habits."""

    add_bos: bool = False
    space_prefix: bool = False
    bos_id: int | None = 0
    bos_text: str = "<s>"
    eos_text: str = "</s>"

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        specials = USER_DEFINED + (CONTROL if parse_special else ())
        ids = [0] if add_special and self.add_bos else []
        for part in re.split("(" + "|".join(map(re.escape, specials)) + ")", text):
            if part in specials:
                ids.append((CONTROL + USER_DEFINED).index(part))
            elif part:
                ids += self._plain(" " * self.space_prefix + part)
        return ids

    def _plain(self, text: str) -> list[int]:
        ids: list[int] = []
        for part in re.split("(" + "|".join(WORDS) + ")", text):
            if part in WORDS:
                ids.append(FIRST_WORD + WORDS.index(part))
            else:
                ids += spelled(part)
        return ids

    def piece(self, token: int, *, special: bool = False) -> bytes:
        if token >= FIRST_BYTE:
            return bytes([token - FIRST_BYTE])
        hidden = CONTROL if special else ("",) * len(CONTROL)
        return (*hidden, *USER_DEFINED, *WORDS)[token].encode()

    def special_texts(self) -> Collection[str]:
        return CONTROL + USER_DEFINED


def spelled(text: str) -> list[int]:
    """Ids of `text`, one for each byte: a spelling that the tokenizer itself would not choose for a word."""
    return [FIRST_BYTE + byte for byte in text.encode()]


def shown(ids: list[int]) -> str:
    """What ids stand for, control tokens included."""
    toy = ToyTokenizer()
    return b"".join(toy.piece(i, special=True) for i in ids).decode()
