"""Names of models as people spell them: Ollama's, Hugging Face's, half remembered. Knows no registry."""

import difflib
import re
from collections.abc import Collection, Iterable

# What other catalogues add to a name, and what says nothing here: every model is an instruct model.
_SAYS_NOTHING = {"latest", "instruct", "it", "chat", "gguf"}
_QUANT = re.compile(r"[-:._](i?q[0-9][a-z0-9_]*|bf16|fp?16|f32)$", re.IGNORECASE)
_PIECES = re.compile(r"[a-z]+(?=[0-9])|[^-_: /]+")
_SIZE = re.compile(r"([0-9.]+)([bm])")
_LIKE = 0.6


def spelt(text: str, names: Iterable[str]) -> str | None:
    """Return the one name that a spelling means, with the quantisation that it gives; else None.

    `qwen2.5-coder:1.5b`, `Qwen2.5-Coder-1.5B-Instruct-GGUF` and `qwen-2.5-coder-1.5b` are one name.
    """
    quant = _QUANT.search(text)
    pieces = _pieces(text[: quant.start()] if quant else text)
    found = [name for name in names if pieces and _pieces(name) == pieces]
    if len(found) != 1:
        return None
    return f"{found[0]}:{quant[1]}" if quant else found[0]


def like(text: str, names: Collection[str]) -> list[str]:
    """Return all names that a text may mean: those of the family that it names, the smallest first; else similar ones."""
    pieces = _pieces(text)
    family = [name for name in names if pieces and _pieces(name)[: len(pieces)] == pieces]
    return sorted(family, key=_size) or difflib.get_close_matches(text, names, 6, _LIKE)


def _pieces(name: str) -> list[str]:
    found = _PIECES.findall(name.lower())
    return [piece for piece in found if piece not in _SAYS_NOTHING]


def _size(name: str) -> float:
    """Return how many millions of weights a name tells of, those of all experts; 0 where it tells of none."""
    found = _SIZE.findall(name.lower())
    return max((float(number) * {"b": 1000, "m": 1}[unit] for number, unit in found), default=0)
