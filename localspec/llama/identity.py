"""Everything that has to be the same for what a context has evaluated to mean, and to round, the same elsewhere."""

from typing import Any

from localspec.llama.backend import build
from localspec.llama.devices import placed_on
from localspec.llama.sequence import LlamaSequence


def belongs_to(
    context: LlamaSequence, identity: str, *, reads_plain: bool = False
) -> dict[str, Any]:
    """Return it by names.

    Args:
        context: of the model as it is loaded.
        identity: what the model is, such as the sha256 of its file.
        reads_plain: whether a plain copy of it reads prompts.
    """
    options, on_gpu, made_by = context.model.options, context.model.on_gpu, build()
    placed = [options.split, options.tensor_split, options.cpu_moe, options.kv_offload]
    kernels = [options.repack, options.gpu_layers, list(options.devices), *["plain"] * reads_plain]
    return {
        "model": identity,
        "llama.cpp": [made_by.version, *made_by.backends, *made_by.features],
        "cache type": options.kv_type,
        "attention": options.attention(on_gpu=on_gpu),
        "kernels": kernels,
        "chunk size": options.chunk(on_gpu=on_gpu),
        "placed": [device.identity for device in placed_on(options)] + placed if on_gpu else [],
    }
