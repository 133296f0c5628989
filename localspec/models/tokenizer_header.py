"""What a GGUF header says about its tokenizer. Knows the keys, not how to tokenize."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localspec.errors import ModelFileError
from localspec.models.gguf_values import StringArray, Value

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
    model, tokens, merges = own.get("model"), own.get("tokens"), own.get("merges")
    pre = own.get("pre")
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
