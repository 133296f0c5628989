"""The layers of a plain transformer: which tensors are theirs, and what has to be zero for one to do nothing."""

import re

from localspec.models.gguf import GgufHeader

BLOCK = re.compile(r"blk\.(\d+)\.(.+)")
# What each half of a layer adds to the residual stream is a product of one of these.
_LAST_OF_ATTENTION = {"attn_output.weight"}
_LAST_OF_FEED_FORWARD = {"ffn_down.weight", "ffn_down_exps.weight"}
_ZERO = re.compile(r"(attn_output|ffn_down|ffn_down_exps|ffn_down_shexp)\.(weight|bias)")
# Layers of these do something else beside, or instead.
_FOREIGN = re.compile(r"ssm_|shortconv|time_mix|channel_mix|per_layer|altup|laurel|inp_gate|nextn")


def plain_layers(header: GgufHeader) -> int | None:
    """Return how many layers a transformer has, of which each adds what it computes to its input; None for other models."""
    n_layers = header.number(f"{header.architecture}.block_count")
    parts: dict[int, set[str]] = {}
    for tensor in header.tensors:
        if match := BLOCK.match(tensor.name):
            parts.setdefault(int(match[1]), set()).add(match[2])
    plain = (
        n_layers is not None
        and set(parts) == set(range(n_layers))
        and all(
            own & _LAST_OF_ATTENTION
            and own & _LAST_OF_FEED_FORWARD
            and not any(_FOREIGN.match(part) for part in own)
            for own in parts.values()
        )
    )
    return n_layers if plain else None


def writes_to_residual(part: str) -> bool:
    """Return whether a layer's tensor, by its name in the layer, is one of those that do nothing if all of them are zero."""
    return _ZERO.fullmatch(part) is not None
