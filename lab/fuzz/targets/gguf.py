"""A model file's header: tokenizer, sizes, and whatever is computed of them before anything is loaded."""

from localspec.models.gguf import GgufHeader, parse_header
from localspec.models.pairs import compare_tokenizers, require_compatible
from localspec.models.shape import model_shape
from localspec.models.tokenizer import fingerprint
from localspec.options import LoadOptions
from localspec.plan.memory import predict
from tests.models.gguf_builder import Content, Raw, Tensor, build, model_file, model_values

_LLAMA: dict[str, Content] = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.embedding_length": 32,
    "llama.context_length": 512,
    "llama.feed_forward_length": 64,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": [2, 4],
    "llama.attention.sliding_window": 16,
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": ["<unk>", "<0x0A>", "a"],
    "tokenizer.ggml.scores": Raw(9, b"\x06\0\0\0\x03" + bytes(7) + bytes(12)),
    "tokenizer.ggml.token_type": [2, 6, 1],
    "tokenizer.ggml.eos_token_id": 2,
}
_TENSORS = (
    Tensor("token_embd.weight", (32, 3)),
    Tensor("blk.0.attn_k.weight", (32, 32), 12),
    Tensor("blk.1.ssm_in.weight", (32,), 0, 384),
)
SEEDS = (
    model_file(),
    build(_LLAMA, _TENSORS, data_bytes=5000),
    build(model_values(model="llama", merges=None), version=2),
)
_OTHER = parse_header(SEEDS[0], name="other.gguf")


def run(data: bytes) -> None:
    use(parse_header(data, name="a.gguf"))


def use(header: GgufHeader) -> None:
    """Do with a header what the program does before it loads a model."""
    _ = header.context_length, header.chat_template
    shape = model_shape(header)
    if shape is not None:
        predict(shape, LoadOptions(4096, max_rows=9))
    tokenizer = header.tokenizer
    fingerprint(tokenizer)
    compare_tokenizers(tokenizer, _OTHER.tokenizer)
    require_compatible(header, _OTHER)
