"""Which tokens end a reply, from a header alone.

llama.cpp decides this by special ids and by token texts; the same rules stand here, so that pairs can
be compared before anything is downloaded or loaded.

Source: `llama_vocab::impl::load` in `llama-vocab.cpp` of llama.cpp, as of llama-cpp-python 0.3.36.
"""

from localspec.models.tokenizer_header import TokenizerHeader

_ENDS = frozenset(
    text.encode()
    for text in (
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
        "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]",
        "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
        "<\uff5cend\u2581of\u2581sentence\uff5c>", "[e~[",
    )
)  # fmt: skip
# A header may name these; else they are known by their texts, of which a vocabulary has one.
_FILL_IN = {
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}
_DEFAULT_EOS = {"llama": 2, "gpt2": 11, "t5": 1}  # where the header names none
# Texts that end nothing where others are in the vocabulary, too.
_NO_ENDS = (
    ((b"<|return|>", b"<|call|>"), b"<|end|>"),
    ((b"<|calls|>", b"<|flush|>"), b"<|end|>"),
    ((b"<|tool_response>",), b"</s>"),
)


def eog_tokens(tokenizer: TokenizerHeader) -> frozenset[int]:
    """Return the ids after which llama.cpp ends a generation."""
    wanted = _ENDS | {text.encode() for texts in _FILL_IN.values() for text in texts}
    found = {piece: token for token, piece in enumerate(tokenizer.tokens) if piece in wanted}
    ids = {found[text] for text in _ENDS if text in found}
    special = tokenizer.special_ids
    ids |= {special[name] for name in ("eos", "eot", "eom") if name in special}
    if "eos" not in special and tokenizer.model in _DEFAULT_EOS:
        ids.add(_DEFAULT_EOS[tokenizer.model])
    for name, texts in _FILL_IN.items():
        if name in special:
            ids.add(special[name])
        else:
            ids |= {found[text.encode()] for text in texts if text.encode() in found}
    for witnesses, text in _NO_ENDS:
        if all(witness in found for witness in witnesses):
            ids.discard(found.get(text, -1))
    return frozenset(token for token in ids if 0 <= token < tokenizer.n_vocab)
