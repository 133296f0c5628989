"""What is known of one model: what the registry says, and what the file says where it is here."""

from math import prod
from pathlib import Path

from localspec.models.gguf_header import GgufHeader
from localspec.models.hub_reference import HubReference
from localspec.models.inventory import where
from localspec.models.obtain import label
from localspec.models.reference import look_up, resolve
from localspec.models.registry import ModelEntry, Registry
from localspec.models.shard_set import shards_of
from localspec.models.split_model import read_model
from localspec.models.store import Store

Fact = str | int | bool | list[str] | None

# llama.cpp's `llama_ftype`: how most of the weights are stored.
_FILE_TYPE_NAMES = (
    "F32 F16 Q4_0 Q4_1 - - - Q8_0 Q5_0 Q5_1 Q2_K Q3_K_S Q3_K_M Q3_K_L Q4_K_S Q4_K_M Q5_K_S Q5_K_M "
    "Q6_K IQ2_XXS IQ2_XS Q2_K_S IQ3_XS IQ3_XXS IQ1_S IQ4_NL IQ3_S IQ3_M IQ2_S IQ2_M IQ4_XS IQ1_M "
    "BF16"
)
_FILE_TYPES = dict(enumerate(_FILE_TYPE_NAMES.split()))


def facts_of(reference: str, registry: Registry, store: Store) -> dict[str, Fact]:
    """Return what is known of a model, by name; None where something is not known.

    The hub is asked only for what nothing on this machine names.

    Raises:
        ModelUnavailable: no such model or file.
        ModelFileError: the file is here and no sound GGUF.
    """
    found = resolve(reference, registry)
    if isinstance(found, HubReference):
        found = look_up(reference, registry)
    if isinstance(found, ModelEntry):
        return _of_entry(found, store)
    header = read_model(found)
    return {"name": reference, "size_bytes": header.size_bytes, **_of_file(found, header)}


def _of_entry(entry: ModelEntry, store: Store) -> dict[str, Fact]:
    facts: dict[str, Fact] = {
        "name": entry.name,
        "size_bytes": entry.size_bytes or None,
        "params": entry.params,
        "context": entry.context,
        "licence": entry.licence,
        "sha256": entry.sha256 or None,
        "learnt": None if entry.learnt is None else entry.learnt.date,
        "commit": None if entry.learnt is None else entry.learnt.commit,
        "sources": [label(source) for shard in shards_of(entry) for source in shard.sources],
    }
    path = store.path_of(entry)
    if path is None:
        begun = store.partial_bytes(entry)
        return {**facts, "quant": entry.quant or None, "here": False, "here_bytes": begun or None}
    of_file = _of_file(path, read_model(path))
    return {**facts, "here": True, **{key: of_file[key] for key in of_file if not facts.get(key)}}


def _of_file(path: Path, header: GgufHeader) -> dict[str, Fact]:
    tokenizer = header.tokenizer
    file_type = header.metadata.get("general.file_type")
    return {
        "architecture": header.architecture,
        "params": header.text("general.size_label"),
        "weights": sum(prod(tensor.shape) for tensor in header.tensors),
        "context": header.context_length,
        "quant": _FILE_TYPES.get(file_type) if isinstance(file_type, int) else None,
        "licence": header.text("general.license"),
        "tokenizer": " ".join(filter(None, (tokenizer.model, tokenizer.pre))),
        "n_vocab": tokenizer.n_vocab,
        "chat_template": header.chat_template is not None,
        "path": str(path),
        "where": where(path),
    }
