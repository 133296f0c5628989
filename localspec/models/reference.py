"""What a user means by the name of a model: an entry of the registry, or a file of their own.

A file of their own is named by its path, or by the name under which it was imported; a file on the
hub is named `user/repo:QUANT`.
"""

import os
from pathlib import Path

from localspec.errors import ModelUnavailable
from localspec.models.hub_reference import HubReference, hub_reference
from localspec.models.imported import load_imported, require_here
from localspec.models.learning import learn
from localspec.models.paths import data_dir, shown
from localspec.models.registry import ModelEntry, Registry, name_list
from localspec.models.store import Store


def look_up(reference: str, registry: Registry, *, offline: bool = False) -> ModelEntry | Path:
    """Return the existing file that a reference means, or the entry with all that has to be known.

    Asks the hub where no registry says what a model's bytes have to be, and nobody learnt it before.

    Raises:
        ModelUnavailable: no such file or name, or the hub does not tell.
        IntegrityError: the hub has another file than the registry promises.
    """
    return learn(resolve(reference, registry), offline=offline)


def resolve(reference: str, registry: Registry) -> ModelEntry | Path | HubReference:
    """Return what a reference means, as far as that can be said without a network.

    What has a path separator or ends in `.gguf` is a path, unless it reads as `user/repo:QUANT`. A
    known name is a model even where a file of that name lies in the working directory: what a name
    means should not depend on that.

    Raises:
        ModelUnavailable: no such file, or no such name.
    """
    try:
        return _resolve(reference, registry)
    except (OSError, RuntimeError) as error:  # too long, not ours to look into, `~` of nobody
        reason = getattr(error, "strerror", None) or str(error)
        raise ModelUnavailable(
            f"{shown(reference)[:200]} cannot be a model file ({reason}): check the path"
        ) from error


def _resolve(reference: str, registry: Registry) -> ModelEntry | Path | HubReference:
    on_hub = hub_reference(reference)
    if on_hub is not None:
        return registry.find(on_hub.text) or _imported(on_hub.text) or on_hub
    if not _looks_like_path(reference):
        if reference in registry.models:
            return registry.models[reference]
        imported = _imported(reference)
        if imported is not None:
            return imported
        return Path(reference) if Path(reference).is_file() else registry.model(reference)
    path = Path(reference).expanduser()
    if path.is_dir():
        raise ModelUnavailable(f"{shown(path)} is a directory: give the .gguf file in it")
    if not path.exists():
        known = name_list(registry.models)
        raise ModelUnavailable(
            f"there is no file {shown(path)}: check the path, or give a known name ({known})"
        )
    return path


def _imported(name: str) -> Path | None:
    store = Store(data_dir())
    imported = load_imported(store.root).get(name)
    return None if imported is None else require_here(imported, store)


def _looks_like_path(reference: str) -> bool:
    separators = [separator for separator in (os.sep, os.altsep) if separator]
    return (
        any(separator in reference for separator in separators)
        or reference.startswith("~")
        or reference.lower().endswith(".gguf")
    )
