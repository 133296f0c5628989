"""What a model's makers recommend for sampling: the registry says it of its models, and a GGUF of itself.

Source of the keys: llama.cpp's `gguf-py`, `Keys.General`.
"""

import math
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from localspec.errors import LocalspecError
from localspec.models.entries import ModelEntry
from localspec.models.gguf import GgufHeader, last_header
from localspec.models.names import hub_name, look_up, resolve
from localspec.models.registry import Registry, load_registry
from localspec.models.store import Store
from localspec.options import SamplingParams
from localspec.options.option import options_of
from localspec.storage.paths import data_dir

_PREFIX = "general.sampling."
_KEYS = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repeat_penalty",
    "penalty_last_n": "penalty_last_n",
}
BY_FILE = "recommended by the file"
_OPTIONS = {each.name: each for each in options_of(SamplingParams)}
Values = Mapping[str, float | bool | str]


def recommended(name: str, registry: Registry, *, offline: bool = True) -> tuple[Values, str]:
    """Return the sampling that is recommended for a model, by the names of options, and who does that.

    A registry's entry goes before the file. Of a file on the hub that is to be downloaded its header is fetched, so that
    the first answer is drawn as all others are; `offline` asks only what is here.
    """
    if known := registry.sampling(name):
        return known, f"recommended for {name}"
    values: Values = {}
    with suppress(LocalspecError, OSError, ValueError):
        path = _file_of(name, registry)
        if path is not None:
            values = _of_file(path)
        elif not offline and registry.find(name) is None and hub_name(name) is not None:
            values = _of_hub(name)
    return values, BY_FILE if values else ""


def of_header(header: GgufHeader) -> dict[str, float]:
    """Return the sampling that a file recommends, by the names of options; what no option can be is left out."""
    found: dict[str, float] = {}
    for key, name in _KEYS.items():
        value = header.metadata.get(_PREFIX + key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if name == "top_k":
            value = max(0, int(value)) if math.isfinite(value) else -1
        # Written as 32-bit numbers: 0.95 comes back as 0.949999988.
        value = round(value, 6) if isinstance(value, float) else value
        value = float(value) if _OPTIONS[name].kind == "number" else value
        if _OPTIONS[name].problem(value) is None:
            found[name] = value
    return found


def _file_of(name: str, registry: Registry) -> Path | None:
    """Return the file of a model that is on this machine."""
    pair = registry.pairs.get(registry.name(name))
    model = resolve(name if pair is None else pair.target, registry)
    if isinstance(model, ModelEntry):
        return Store(data_dir()).path_of(model)
    return model if isinstance(model, Path) else None


@cache
def _of_hub(name: str) -> Values:
    from localspec.models.repository import model_header  # noqa: PLC0415 - few models are not here yet

    entry = look_up(name, load_registry())
    return of_header(model_header(entry))


def _of_file(path: Path) -> Values:
    """Return what a file recommends; its header is read once, for whoever loads it, too."""
    return of_header(last_header(path)) if path.is_file() else {}
