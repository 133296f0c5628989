"""Facts about placement: where the models go that a run without flags loads, and what they take there."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from localspec.config.resolve import resolve
from localspec.diagnosis.fact import Fact
from localspec.errors import ModelUnavailable, UsageError
from localspec.launch.fit import forecast
from localspec.launch.names import named_models
from localspec.models.gguf import GgufHeader, read_model
from localspec.models.names import look_up
from localspec.models.registry import Registry, load_registry
from localspec.models.store import Store
from localspec.options import LaunchOptions, changed


def placement(root: Path) -> Iterator[Fact]:
    """Yield the plan of the pair that is set, as far as its models are here.

    Args:
        root: the data directory.
    """
    try:
        values = {name: each.value for name, each in resolve({}).items()}
    except UsageError:  # of which the section of settings tells
        return
    yield from planned(values, root, load_registry())


def planned(values: Mapping[str, Any], root: Path, registry: Registry) -> Iterator[Fact]:
    """Yield the plan of the models that settings name.

    Args:
        values: of the settings, by their names.
        root: the data directory.
        registry: says what the names mean.
    """
    request = changed(LaunchOptions(), values)
    if request.workers:  # to ask one for its memory would take it from whoever uses it
        told = f"not known now: {', '.join(request.workers)} will say what is free at loading"
        yield Fact("placement", "workers", told)
        return
    target, draft_model = named_models(request, registry)
    header = _header(target, registry, root)
    if header is None:
        yield Fact("placement", target, "not here yet: `localspec pull` tells before it downloads")
        return
    small = None if draft_model is None else _header(draft_model, registry, root)
    options = request.load.exact() if request.exact else request.load
    found = forecast(header, small, options, request.draft_load(options))
    name = target if small is None else f"{target} with {draft_model}"
    for line in found.lines:
        yield Fact("placement", name, line)
    for problem in found.problems:
        yield Fact("placement", name, problem, "warning")


def _header(reference: str, registry: Registry, root: Path) -> GgufHeader | None:
    try:
        found = look_up(reference, registry, offline=True)
    except ModelUnavailable:
        return None
    path = found if isinstance(found, Path) else Store(root).path_of(found)
    return None if path is None else replace(read_model(path), name=reference)
