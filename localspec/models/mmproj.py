"""What a model takes beside text, and the file with its encoders (`mmproj`), judged by headers alone.

Source: `clip.cpp` and `mtmd.cpp` of the llama.cpp that llama-cpp-python 0.3.36 carries; its converters write the width of the
text model as `projection_dim`.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from localspec.errors import LocalspecError
from localspec.models.entries import Medium, ModelEntry
from localspec.models.file_names import mmproj_for
from localspec.models.gguf import GgufHeader, read_header
from localspec.models.ledger import IMPORTS
from localspec.models.registry import Registry, load_registry
from localspec.models.store import Store
from localspec.storage.paths import data_dir

ENCODERS = "clip"
"""The architecture of such a file."""
_KINDS: dict[Medium, str] = {"image": "vision", "audio": "audio"}
_OWN_WIDTH = {"mlp", "ldp", "ldpv2", "adapter", "resampler"}
"""Projectors whose older converters wrote the encoder's own width as `projection_dim`."""
WORDS: dict[Medium, str] = {"image": "images", "audio": "audio"}


def mmproj_of(model: ModelEntry | Path) -> Path | None:
    """Return the mmproj file of a model that is on this machine; None without one.

    Args:
        model: an entry, or a file: in the store, or of the user's own, where one in its folder counts.
    """
    store = Store(data_dir())
    if isinstance(model, ModelEntry):
        return None if model.mmproj is None else store.path_of(model.mmproj)
    entries = IMPORTS.load(store.root).values() if model.is_relative_to(store.root) else ()
    for entry in entries:
        if entry.mmproj is not None and store.path_of(entry) == model:
            return store.path_of(entry.mmproj)
    return mmproj_in_folder(model)


def mmproj_in_folder(model: Path) -> Path | None:
    """Return the mmproj file in the folder of a model that is the model's by its name, or as the only model there."""
    for file in dict.fromkeys((model, model.resolve())):
        with suppress(OSError):
            names = [each.name for each in file.parent.iterdir()]
            if (name := mmproj_for(file.name, names, mixed=True)) is not None:
                return file.parent / name
    return None


def takes(model: ModelEntry | Path) -> tuple[Medium, ...]:
    """Return what a model takes beside text, with its mmproj file wherever that is; empty for one that reads text alone."""
    if isinstance(model, ModelEntry) and (model.mmproj is None or model.mmproj.takes):
        return model.mmproj.takes if model.mmproj else ()
    path = mmproj_of(model)
    try:
        return () if path is None else encoded(read_header(path))
    except LocalspecError:  # a damaged file, as loading it will say
        return ()


def encoded(mmproj: GgufHeader) -> tuple[Medium, ...]:
    """Return what a file encodes; empty for one without encoders."""
    if mmproj.architecture != ENCODERS:
        return ()
    has = (kind for kind, word in _KINDS.items() if mmproj.metadata.get(f"clip.has_{word}_encoder"))
    return tuple(has)


def why_no_mmproj(target: GgufHeader, mmproj: GgufHeader) -> str | None:
    """Return why a file does not have the encoders of a target, in words that follow its name; None if nothing speaks against it."""
    if mmproj.architecture != ENCODERS:
        return f"is no mmproj file: its architecture is {mmproj.architecture}"
    if not (kinds := encoded(mmproj)):
        return "has no encoder of images or audio"
    n_embd = target.number(f"{target.architecture}.embedding_length")
    for width in (_width(mmproj, kind) for kind in kinds):
        if width and n_embd and width != n_embd:
            return f"is for a model of width {width}, and {target.name} has width {n_embd}"
    return None


def _width(mmproj: GgufHeader, kind: Medium) -> int | None:
    """Return the width of the text model that an encoder is for; None where the header does not say."""
    if mmproj.text("clip.projector_type") in _OWN_WIDTH:
        shapes = {each.name: each.shape for each in mmproj.tensors}
        return shapes.get("mm.2.weight", (0, 0))[-1]
    return mmproj.number(f"clip.{_KINDS[kind]}.projection_dim")


def in_words(media: Iterable[Medium]) -> str:
    """Return what a model takes, text first: `text, images`."""
    return ", ".join(["text", *(WORDS[each] for each in media)])


def model_that_takes(medium: Medium, registry: Registry | None = None) -> str | None:
    """Return the name of a model that takes images, or audio: one that is here, or else the smallest of the latest for chat.

    None where the registry has none.
    """
    registry, store = registry or load_registry(), Store(data_dir())
    targets = {pair.target for pair in registry.pairs.values()}
    models = [
        (
            store.path_of(each) is None,
            not each.is_known,
            name not in targets,
            -(each.year or 0),
            each.size_bytes,
            name,
        )
        for name, each in registry.writing().models.items()
        if each.mmproj is not None and medium in takes(each)
    ]
    return min(models)[-1] if models else None
