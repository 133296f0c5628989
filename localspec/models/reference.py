"""What a user means by the name of a model: an entry of the registry, or a file of their own.

A file of their own is named by its path, or by the name under which it was imported; a file that
was pulled from the hub as `user/repo:QUANT` keeps that name.
"""

import os
from pathlib import Path

from localspec.errors import ModelUnavailable
from localspec.models.hub_files import hub_reference
from localspec.models.imported import load_imported, require_here
from localspec.models.paths import data_dir, shown
from localspec.models.registry import ModelEntry, Registry, name_list
from localspec.models.store import Store


def resolve(reference: str, registry: Registry) -> ModelEntry | Path:
    """Return the registry entry or the existing file that a reference means.

    What has a path separator or ends in `.gguf` is a path. A known name is a model even where a
    file of that name lies in the working directory: what a name means should not depend on that.

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


def _resolve(reference: str, registry: Registry) -> ModelEntry | Path:
    on_hub = hub_reference(reference) is not None
    if on_hub or not _looks_like_path(reference):
        if reference in registry.models:
            return registry.models[reference]
        store = Store(data_dir())
        imported = load_imported(store.root).get(reference)
        if imported is not None:
            return require_here(imported, store)
        if on_hub:
            raise ModelUnavailable(
                f"there is no file {reference} here: check the path, or if it is on the hub, "
                f"`localspec pull {reference}` fetches it"
            )
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


def _looks_like_path(reference: str) -> bool:
    separators = [separator for separator in (os.sep, os.altsep) if separator]
    return (
        any(separator in reference for separator in separators)
        or reference.startswith("~")
        or reference.lower().endswith(".gguf")
    )
