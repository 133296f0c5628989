"""Which models a request names, and names that mean the same for every reader. Cheap to import: looks at no file's content."""

import os
from dataclasses import replace
from pathlib import Path

from localspec.models.entries import HubName
from localspec.models.registry import Registry, load_registry
from localspec.options import LaunchOptions


def named_models(request: LaunchOptions, registry: Registry) -> tuple[str, str | None]:
    """Return the target that a request names, and the draft model, if it names one.

    Raises:
        ModelUnavailable: there is no such pair.
    """
    if request.target is not None:
        return request.target, request.draft_model
    pair = registry.pair(request.pair or registry.default_pair)
    return pair.target, request.draft_model or pair.draft_model


def with_full_names(request: LaunchOptions) -> LaunchOptions:
    """Return a request for the same models by names that mean them in every directory, whatever alias was used.

    Raises:
        ModelUnavailable: there is no such pair.
        OSError, RuntimeError, ValueError: a path is none.
    """
    registry = load_registry()
    target, draft_model = named_models(request, registry)
    full = None if draft_model is None else _full(draft_model, registry)
    lora = request.draft_lora and str(Path(request.draft_lora).expanduser().resolve())
    mmproj = request.mmproj
    if mmproj is not None and not request.reads_text_only:
        mmproj = str(Path(mmproj).expanduser().resolve())
    return replace(
        request,
        pair=None,
        target=_full(target, registry),
        draft_model=full,
        draft_lora=lora,
        mmproj=mmproj,
    )


def without_files(request: LaunchOptions) -> LaunchOptions:
    """Return a request for another target: what was named beside this one is not for that."""
    mmproj = request.mmproj if request.reads_text_only else None
    return replace(request, draft_model=None, draft_lora=None, mmproj=mmproj)


def name_of(load: LaunchOptions) -> str:
    """Return the pair or target of a request, as it was named; empty for the default pair, or the one model of a server."""
    return load.pair or load.target or ""


def named(load: LaunchOptions, name: str) -> LaunchOptions:
    """Return a request for what a name means, a pair or else a target, loaded like the one before."""
    if load.server is not None:
        return replace(load, pair=None, target=name)
    chosen = load_registry().chosen(name)
    pair, target = chosen.get("pair"), chosen.get("target")
    return replace(without_files(load), pair=pair, target=target)


def with_names(load: LaunchOptions) -> LaunchOptions:
    """Return a request that names the default pair where it names nothing."""
    has_name = name_of(load) or load.server is not None
    return load if has_name else replace(load, pair=load_registry().default_pair)


def _full(reference: str, registry: Registry) -> str:
    """Return what a reference means, by the rules of `models.names`; a file's is its path."""
    reference = registry.aliases.get(reference, reference)
    is_file = reference.lower().endswith(".gguf") or Path(reference).exists()
    on_hub = None if is_file else HubName.parse(reference)
    is_path = is_file or os.sep in reference or reference.startswith("~")
    if is_path and on_hub is None and reference not in registry.models:
        return str(Path(reference).expanduser().resolve())
    text = reference if on_hub is None else on_hub.text
    entry = registry.find(text)
    return text if entry is None else entry.name
