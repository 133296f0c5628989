"""A larger context for the model that is loaded: as far as it was trained for, and the free memory holds it."""

from dataclasses import dataclass
from pathlib import Path

from localspec.errors import LocalspecError
from localspec.models.entries import ModelEntry
from localspec.models.gguf import read_model
from localspec.models.memory import layer_kv_bytes, model_shape
from localspec.models.names import resolve
from localspec.models.registry import load_registry
from localspec.models.repository import local_file
from localspec.options import LoadOptions
from localspec.resources import free_ram_bytes

_MOST_OF_FREE = 0.5


@dataclass(frozen=True, slots=True)
class LargerContext:
    """A context that could be had.

    Args:
        n_ctx: its tokens.
        more_bytes: what it takes beyond the one that is loaded.
    """

    n_ctx: int
    more_bytes: int


def larger_context(target: str, n_ctx: int, kv_type: str) -> LargerContext | None:
    """Return twice the context, or what is left up to the one that the model was trained for.

    Args:
        target: name or path of the model.
        n_ctx: tokens of the context that is loaded.
        kv_type: type of its cache.

    Returns:
        None where there is no larger one, or half of the free memory does not hold what it takes.
    """
    try:
        found = resolve(target, load_registry())
        path = local_file(found) if isinstance(found, ModelEntry) else found
        shape = model_shape(read_model(path)) if isinstance(path, Path) else None
    except LocalspecError:
        return None
    free = free_ram_bytes()
    if shape is None or shape.n_ctx_train is None or free is None:
        return None
    larger = min(2 * n_ctx, shape.n_ctx_train)

    def cache_bytes(tokens: int) -> int:
        options = LoadOptions(tokens, kv_type)
        return sum(layer_kv_bytes(layer, options) for layer in shape.layers)

    more = cache_bytes(larger) - cache_bytes(n_ctx)
    return LargerContext(larger, more) if 0 < more <= _MOST_OF_FREE * free else None
